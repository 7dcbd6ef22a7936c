#!/usr/bin/env python3
"""Words that the documentation does without: prose.py REPOSITORY

Each row is a pattern and what to write instead. Code, and what is printed, do not count.
"""
import pathlib, re, sys

INSTEAD = [
    (r"(?:^|[.:;] |\*\* )(?:Who|What) (?!(?:is|are|was|does|do|can|happens)\b[^.]*\?)[a-z]+ [^.?\n]*\.", "a subject that is a noun: 'The owner of a slice sends ...'"),
    (r"\b(?:Likewise|likewise|Whoever|whoever|so-manieth|wished for|for want of)\b", "plain words"),
    (r"\b(?:bytes|messages|samples|seconds|updates|elements|ranks|memory) an? (?:rank|element|second|host|sample|update|micro-batch)\b(?! (?:that|which|of|is|has|averages|sends))",
     "'per': '8 bytes per element'"),
    (r"\b(?:waiting for one drives all|what was aimed for and is missed)\b", "a sentence with a subject"),
]


def prose(text):
    """The text without code; as many lines."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"^```.*?^```|^<!--.*?-->", blank, text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda match: "x" * len(match[0]), text)


root = pathlib.Path(sys.argv[1])
faults = 0
# docs/architecture.md is for those who work on the library, and uses its own words.
pages = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "bench/README.md", "bench/RESULTS.md", "integrations/README.md", "integrations/torch/README.md", "integrations/lightgbm/README.md", "integrations/libtorch/README.md")]
pages += [page for page in sorted((root / "docs").rglob("*.md")) if page.name != "architecture.md"]
for page in pages:
    text = prose(page.read_text())
    for pattern, instead in INSTEAD:
        for match in re.finditer(pattern, text, re.M):
            faults += 1
            print(f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: '{match[0].strip()[:80]}'; expected {instead}")
print(f"{len(pages)} pages, {faults} faults")
sys.exit(1 if faults else 0)
