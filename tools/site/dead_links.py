#!/usr/bin/env python3
"""Each link of a built site leads somewhere: dead_links.py FOLDER. The pages of the reference count, too; the network is not asked."""
import functools
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("href", "src") and value:
                self.links.append(value)
            elif key in ("id", "name") and value:
                self.names.add(value)


@functools.lru_cache(None)
def page(path):
    return Page(path.read_text(errors="replace"))


root = pathlib.Path(sys.argv[1]).resolve()
pages = sorted(root.rglob("*.html"))
assert len(pages) > 100, f"{root}: found {len(pages)} pages; expected a built site"
dead, links = [], 0
for path in pages:
    if path.name == "404.html":
        continue  # its links begin at the root of a server
    for link in page(path).links:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc or link.startswith("//"):
            continue
        links += 1
        target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
        if target.is_dir():
            target /= "index.html"
        anchor = urllib.parse.unquote(parts.fragment)
        if not target.is_file():
            dead.append(f"{path.relative_to(root)}: '{link}' leads nowhere")
        elif anchor and anchor != "__skip" and target.suffix == ".html" and anchor not in page(target).names:
            dead.append(f"{path.relative_to(root)}: '{link}' names no place in the page")
print(*dead[:100], f"{len(pages)} pages, {links} links, {len(dead)} dead", sep="\n")
sys.exit(1 if dead else 0)
