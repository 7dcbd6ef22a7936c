#!/usr/bin/env python3
"""The site has a place for each page, and stage.py translates lists for its Markdown: site.py ROOT. tools/site.sh builds the site itself."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]).resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(root / "tools/site"))
import stage

placed = re.findall(r"([\w/]+\.md)\b", (root / "tools/site/mkdocs.yml").read_text().split("\nnav:")[1])
pages = [str(page.relative_to(root)) for page in sorted((root / "docs").rglob("*.md")) if page.parent.name != "reference"]
faults = [f"tools/site/mkdocs.yml: found no place for {page}; expected each page of docs under 'nav'" for page in pages if page not in placed]
faults += [f"tools/site/mkdocs.yml: found {placed.count(page)} places of {page}; expected one" for page in sorted(set(placed)) if placed.count(page) > 1]
faults += [f"tools/site/mkdocs.yml: found {page}, which does not exist" for page in placed if page != "reference/index.md" and not (root / page).is_file()]
cases = [
    ("A paragraph\n- one\n- two", "A paragraph\n\n- one\n- two"),
    ("- one\n  more\n  - inner\n    more\n- two", "- one\n    more\n    - inner\n        more\n- two"),
    ("1. one\n\n   ```cpp\n   int x;\n     y;\n   ```\n\nAfter", "1. one\n\n    ```cpp\n    int x;\n      y;\n    ```\n\nAfter"),
    ("```text\n- no list\n  - neither\n```", "```text\n- no list\n  - neither\n```"),
]
for given, expected in cases:
    found = stage.for_python_markdown(given)
    if found != expected:
        faults.append(f"stage.for_python_markdown({given!r}): found {found!r}; expected {expected!r}")
if stage.without_comments("a\n<!-- given\nx\n-->\n```\n<!-- kept -->\n```") != "a\n```\n<!-- kept -->\n```":
    faults.append("stage.without_comments: expected comments to go, and code to stay")
print(*faults, f"{len(pages)} pages, {len(faults)} faults", sep="\n")
sys.exit(1 if faults else 0)
