#!/usr/bin/env python3
"""One sentence a line in Markdown, so that a diff shows sentences.

    markdown.py [--check] [PAGE...]     default: all pages of the repository

Paragraphs and list items are rejoined and split behind each sentence. Code, tables, headings, comments and pictures stay as
they are. --check changes nothing and lists the pages that would change.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ITEM = re.compile(r"( *)([-*+]|\d+[.)]) +(?=\S)")
ABBREVIATIONS = ("e.g", "i.e", "cf", "vs", "al", "etc", "no", "fig", "approx", "p", "pp", "sec")
# The end of a sentence: a stop outside of code, then a space, then what begins a sentence.
END = re.compile(r"(?<=[.?!])(?P<close>[)\"”]*) (?=[A-Z0-9`\[(*_\"“'])")


def sentences(text):
    """The sentences of a paragraph without line breaks."""
    code = [range(match.start(), match.end()) for match in re.finditer(r"(`+)(?:.*?)\1|\[[^\]]*\]\([^)]*\)|<[^>]*>", text)]
    found, begin = [], 0
    for match in END.finditer(text):
        before = text[begin:match.start()]
        word = re.search(r"(?<!')\b([\w.]*)\.$", before)
        if any(match.start() - 1 in one and match.end() - 1 in one for one in code):
            continue
        if word and (word[1].lower() in ABBREVIATIONS or re.fullmatch(r"[A-Za-z]", word[1]) or re.fullmatch(r"(?:\d+)", before.strip(" .*_"))):
            continue
        if text.count("(", begin, match.end()) > text.count(")", begin, match.end()):
            continue  # a sentence in parentheses stays with the one around it
        found.append(text[begin:match.end() - 1])
        begin = match.end()
    return found + [text[begin:]]


def reflowed(lines, indent):
    text = " ".join(line.strip() for line in lines)
    return [indent + one for one in sentences(text)]


def hard_break(line):
    return line.endswith("  ") or line.endswith("\\")


def formatted(text):
    out, block, indent, first = [], [], "", None

    def flush():
        nonlocal block, first
        if block:
            lines = reflowed(block, indent)
            if first is not None:
                lines[0] = first + lines[0].lstrip()
            out.extend(lines)
        block, first = [], None

    fence, comment, listed = None, False, False
    head = re.match(r"---\n([\w-]+:.*\n)+---\n", text)  # YAML, of which each line is a field
    if head:
        out, text = head[0].split("\n")[:-1], text[head.end():]
    for line in text.split("\n"):
        stripped = line.strip()
        if fence:
            out.append(line)
            if stripped.startswith(fence) and not stripped.strip("`~"):
                fence = None
            continue
        if comment:
            out.append(line)
            comment = "-->" not in line
            continue
        # Outside of a list, four spaces begin a block of code.
        if not block and not listed and re.match(r" {4}\s*\S", line):
            out.append(line)
            continue
        if stripped and not line.startswith(" "):
            listed = False
        opening = re.match(r"\s*(`{3,}|~{3,})", line)
        if opening:
            flush()
            out.append(line)
            fence = opening[1]
            continue
        if stripped.startswith("<!--"):
            flush()
            out.append(line)
            comment = "-->" not in line
            continue
        # No prose: blank lines, tables, headings, rules, HTML, pictures, link definitions, quotes.
        if not stripped or re.match(r"\||#{1,6} |<|!\[|\[[^\]]+\]:|>|-{3,}$|\*{3,}$", stripped):
            flush()
            out.append(line)
            continue
        item = ITEM.match(line)
        if item:
            flush()
            listed = True
            first, indent = item[0], " " * len(item[0])
            block = [line[len(item[0]):]]
        elif block:
            block.append(line)
        elif re.match(r" {4,}\S", line) and not out[-1:] == [""] or hard_break(line):
            out.append(line)
        else:
            indent = re.match(r" *", line)[0]
            block = [line]
    flush()
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, list pages")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_args()
    pages = options.pages
    if not pages:
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        pages = [ROOT / name for name in listed.split() if (ROOT / name).is_file()]
    wrong = 0
    for page in pages:
        before = page.read_text()
        after = formatted(before)
        if before.split() != after.split():
            sys.exit(f"{page}: the words would change; markdown.py is wrong")
        if formatted(after) != after:
            sys.exit(f"{page}: a second run would change the page again; markdown.py is wrong")
        if before == after:
            continue
        wrong += 1
        if options.check:
            print(f"{page}: not one sentence a line; expected what tools/markdown.py writes")
        else:
            page.write_text(after)
    print(f"{len(pages)} pages, {wrong} {'wrong' if options.check else 'changed'}")
    return 1 if options.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
