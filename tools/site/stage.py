#!/usr/bin/env python3
"""Puts the pages of the site where mkdocs finds them: stage.py FOLDER

Pages of the repository keep their places, so that links among them work. A file or folder of code that a page links to becomes a page
that shows it. Doxygen writes the reference to FOLDER/pages/reference/html, and one page per folder of headers lists what it
declares, so that the site's search finds it.
"""
import collections
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cppm": "cpp", ".cc": "cpp", ".cu": "cpp", ".c": "c", ".h": "c", ".py": "python", ".sh": "bash", ".cmake": "cmake",
             ".txt": "text", ".yml": "yaml", ".yaml": "yaml", ".json": "json"}
AS_THEY_ARE = {".svg", ".png", ".jpg"}
SHOWN_BYTES = 60000  # of a folder's code
FENCE = re.compile(r"(\s*)(`{3,}|~{3,})")
ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)\S")


def blocks(text):
    """(line, whether it is code) of Markdown."""
    fence = None
    for line in text.split("\n"):
        found = FENCE.match(line)
        code = fence is not None or found is not None
        if fence and found and found[2].startswith(fence) and not line.strip().strip("`~"):
            fence = None
        elif not fence and found:
            fence = found[2]
        yield line, code


def without_comments(text):
    lines, comment = [], False
    for line, code in blocks(text):
        if comment or not code and line.startswith("<!--"):
            comment = "-->" not in line
        else:
            lines.append(line)
    return "\n".join(lines)


def for_python_markdown(text):
    """Lists as Python-Markdown wants them: a blank line before a list, and four columns per level."""
    lines, levels = [], []
    for line, code in blocks(text):
        if not line.strip():
            lines.append(line)
            continue
        indent = len(line) - len(line.lstrip(" "))
        item = None if code and not FENCE.match(line) else ITEM.match(line)
        if not code or FENCE.match(line):
            while levels and indent < levels[-1]:
                levels.pop()
            if not item and not levels and lines and re.match(r"\s{4}", lines[-1]) and lines[-1].strip() and indent == 0:
                lines.append("")
        offset = levels[-1] if levels else 0
        rest = line[min(offset, indent):]
        if item and lines and lines[-1].strip() and not (ITEM.match(lines[-1]) or re.match(r"\s", lines[-1])) and not lines[-1].startswith(("#", "|")):
            lines.append("")
        lines.append("    " * len(levels) + rest)
        if item:
            levels.append(indent + len(item[2]) + len(item[3]))
    return "\n".join(lines)


class Site:
    def __init__(self, pages):
        self.pages = pages
        self.shown = set()

    def write(self, name, text):
        path = self.pages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def show_file(self, path):
        name = f"{path.relative_to(ROOT)}.md"
        if name not in self.shown:
            self.shown.add(name)
            self.write(name, f"---\nsearch:\n  exclude: true\n---\n# {path.relative_to(ROOT)}\n\n{fenced(path)}")
        return name

    def show_folder(self, path):
        name = f"{path.relative_to(ROOT)}/index.md"
        if name in self.shown:
            return name
        self.shown.add(name)
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "."], cwd=path, capture_output=True, text=True, check=True).stdout.split()
        files = [path / one for one in listed if "/" not in one and (path / one).suffix in LANGUAGES]
        text = f"---\nsearch:\n  exclude: true\n---\n# {path.relative_to(ROOT)}\n\n"
        if sum(one.stat().st_size for one in files) <= SHOWN_BYTES:
            text += "".join(f"## {one.name}\n\n{fenced(one)}\n" for one in files)
            listed = [one for one in listed if path / one not in files]
        self.write(name, text + "".join(f"- `{one}`\n" for one in listed))
        return name

    def target(self, page, link):
        """The link as the site has it."""
        path, hash_, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path:
            return link
        there = (page.parent / path).resolve()
        if there == ROOT / "docs/reference":
            name = "reference/index.md"
        elif there.is_dir():
            name = str((there / "README.md").relative_to(ROOT)) if (there / "README.md").is_file() else self.show_folder(there)
        elif there.suffix == ".md":
            name = str(there.relative_to(ROOT))
        elif there.suffix in AS_THEY_ARE:
            name = str(there.relative_to(ROOT))
            (self.pages / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(there, self.pages / name)
        elif there.is_file():
            name = self.show_file(there)
        else:
            sys.exit(f"{page.relative_to(ROOT)}: found a link to '{link}'; expected a file or folder of the repository")
        return os.path.relpath(name, page.parent.relative_to(ROOT)) + hash_ + anchor

    def add_page(self, page):
        lines = []
        for line, code in blocks(without_comments(page.read_text())):
            if not code:
                parts = re.split(r"(`[^`]*`)", line)
                if not any("](" in part for part in parts[::2]):
                    parts = [line]
                line = re.sub(r"\]\(([^)\s]+)\)", lambda match: f"]({self.target(page, match[1])})", line) if len(parts) > 1 or "](" in line else line
                if line.startswith("|"):
                    line = re.sub(r"\b\d{4}-\d\d-\d\d\b", r'<span class="day">\g<0></span>', line)
            lines.append(line)
        self.write(page.relative_to(ROOT), for_python_markdown("\n".join(lines)))


def fenced(path):
    text = path.read_text(errors="replace")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


# --- the reference

def plain(element):
    """The words of a brief description, with code marked."""
    if element is None:
        return ""
    words = element.text or ""
    for child in element:
        inner = plain(child)
        words += f"`{inner}`" if child.tag == "computeroutput" and inner and "`" not in inner else inner
        words += child.tail or ""
    return " ".join(words.split())


def html_of(refid, member):
    """Where Doxygen has the details."""
    if not member:
        return f"html/{refid}.html"
    compound, anchor = refid.rsplit("_1", 1)
    return f"html/{compound}.html#{anchor}"


def entries(folder):
    """{folder of headers: {name: [(signature, brief, place)]}} of what is public."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))

    def note(element, name, signature, refid, member):
        place = element.find("location")
        brief = plain(element.find("briefdescription")) or plain(element.find("detaileddescription/para"))
        if place is None or not brief:
            return
        header = place.get("file").removeprefix("include/").removeprefix("unisono/")
        found[header.split("/")[0] if "/" in header else "whole headers"][name].append((signature, brief, html_of(refid, member)))

    for path in sorted(folder.glob("*.xml")):
        if path.name == "index.xml":
            continue
        compound = xml.parse(path).getroot().find("compounddef")
        if compound is None or compound.get("kind") not in ("class", "struct", "namespace", "concept"):
            continue
        name = compound.findtext("compoundname")
        if "detail" in name.split("::") or "<" in name or not name.startswith("unisono"):
            continue
        if compound.get("kind") == "namespace":
            for member in compound.iter("memberdef"):
                short = member.findtext("name")
                if member.get("kind") in ("function", "typedef", "variable", "enum") and not short.startswith("operator"):
                    note(member, short, (member.findtext("definition") or short).replace("unisono::", "") + (member.findtext("argsstring") or ""), member.get("id"), True)
        elif name.count("::") - name.count("unisono::testing::") - name.count("unisono::schedule::") <= 1:
            note(compound, name.removeprefix("unisono::"), f"{compound.get('kind')} {name}", compound.get("id"), False)
    return found


def add_reference(site):
    folder = site.pages / "reference"
    folder.mkdir(parents=True)
    settings = (ROOT / "docs/reference/Doxyfile").read_text() + (
        f"\nOUTPUT_DIRECTORY = {folder}\nGENERATE_XML = YES\nXML_PROGRAMLISTING = NO\nSEARCHENGINE = NO\nPROJECT_BRIEF = \"Reference\"\n")
    subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=ROOT, check=True)
    for page in (folder / "html").glob("*.html"):
        text = page.read_text()
        text = text.replace('<div id="projectname">Unisono', '<div id="projectname"><a href="../../index.html">Unisono</a>')
        # Doxygen links to sections that it leaves out when nothing in them has a comment.
        text = re.sub(r'<a href="#([\w-]+)">([^<]*)</a>', lambda match: match[0] if re.search(rf'(?:id|name)="{re.escape(match[1])}"', text) else match[2], text)
        page.write_text(text)
    found = entries(folder / "xml")
    shutil.rmtree(folder / "xml")
    count = sum(len(names) for names in found.values())
    if count < 300:
        sys.exit(f"the reference: found {count} names; expected at least 300")
    text = ("# The reference\n\nThe pages below list the public types, functions and concepts by the folder of their header, and the search finds them.\n"
            "A name leads to all that the header's comment says: shapes and units, cost, errors.\n[All headers, types and files](html/index.html) are pages of Doxygen.\n\n| folder | names |\n|---|---|\n")
    for part in sorted(found):
        page = f"{part.replace(' ', '_')}.md"
        text += f"| [{part}]({page}) | {len(found[part])} |\n"
        lines = [f"# {part}\n"]
        for name in sorted(found[part], key=str.lower):
            lines.append(f"## {name.replace('_', chr(92) + '_')}\n")
            lines += [f"[`{signature[:160] + (' ...' if len(signature) > 160 else '')}`]({place})\n\n{escaped(brief)}\n" for signature, brief, place in found[part][name]]
        site.write(f"reference/{page}", "\n".join(lines))
    site.write("reference/index.md", text)
    return [f"reference/{part.replace(' ', '_')}.md" for part in sorted(found)]


def escaped(text):
    return "".join(part if n % 2 else re.sub(r"([<>*_\[\]])", r"\\\1", part) for n, part in enumerate(re.split(r"(`[^`]*`)", text)))


def main():
    build = Path(sys.argv[1]).resolve()
    build.mkdir(parents=True, exist_ok=True)
    site = Site(build / "pages")
    shutil.rmtree(site.pages, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    pages = [ROOT / name for name in listed if not name.startswith((".", "docs/reference/"))]
    reference = add_reference(site)
    for page in pages:
        site.add_page(page)
    shutil.copy(ROOT / "tools/site/site.css", site.pages)
    settings = (ROOT / "tools/site/mkdocs.yml").read_text()
    (build / "mkdocs.yml").write_text(settings.replace("[reference/index.md]", f"[{', '.join(['reference/index.md', *reference])}]"))


if __name__ == "__main__":
    main()
