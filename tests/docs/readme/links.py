#!/usr/bin/env python3
"""Each link of each page leads somewhere: links.py ROOT. Files beside it, and headings within pages; the network is not asked."""
import pathlib, re, subprocess, sys

root = pathlib.Path(sys.argv[1]).resolve()


def anchors(page):
    """As GitHub makes them of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        while name in found:
            name += "-1"
        found.add(name)
    return found


def wrong(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or root not in [target, *target.parents]:
            yield f"{page.relative_to(root)}: '{link}' leads nowhere"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.relative_to(root)}: '{link}' names no heading"


def pages():
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.splitlines()]
    return [page for page in root.rglob("*.md") if "build" not in page.relative_to(root).parts]


if __name__ == "__main__":
    all_pages = pages()
    assert all_pages, f"there is no page in {root}"
    found = [line for page in all_pages for line in wrong(page)]
    print(*found, f"{len(all_pages)} pages, {len(found)} wrong links", sep="\n")
    sys.exit(1 if found else 0)
