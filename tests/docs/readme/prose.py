#!/usr/bin/env python3
"""Words that the documentation and the headers' comments do without: prose.py REPOSITORY

Each row is a pattern and what to write instead. Code, and what is printed, do not count.
"""
import pathlib, re, sys

PERSONS = (r"\b(?:[Nn]obody|[Ee]verybody)\b", "'no rank', 'all ranks', or whatever is meant")
INSTEAD = [
    (r"(?:^|[.:;] |\*\* )(?:Who|What) (?!(?:is|are|was|does|do|can|happens)\b[^.]*\?)[a-z]+ [^.?\n]*\.", "a subject that is a noun: 'The owner of a slice sends ...'"),
    (r"\b(?:Likewise|likewise|Whoever|whoever|so-manieth|wished for|for want of)\b", "plain words"),
    (r"\b(?:bytes|messages|samples|seconds|updates|elements|ranks|memory) an? (?:rank|element|second|host|sample|update|micro-batch)\b(?! (?:that|which|of|is|has|averages|sends))",
     "'per': '8 bytes per element'"),
    (r"\b(?:waiting for one drives all|what was aimed for and is missed)\b", "a sentence with a subject"),
    (r"\b(?:everything that is short took)\b", "a sentence with a subject"),
    PERSONS,
]
# docs/status.md alone says what has run where, so that no two pages contradict each other.
# Reports and the CHANGELOG speak of the past.
CLAIMS = (r"\b(?:[Uu]ntried|(?<![Ww]hat )ha(?:s|ve) run on|[Rr]an on an? |tested on (?!network namespaces|examples)|(?:is|are|was|were|been) (?:not )?(?:been )?tried (?:on|with)|no test has|[Aa]ll of them pass|H[12]00\b)", "a link to docs/status.md, and the claim there")
MAY_CLAIM = ("docs/status.md", "bench/RESULTS.md", "bench/README.md", "CHANGELOG.md")
FOLDERS = (".github", "bench", "conan", "docs", "examples", "integrations", "tests", "tools")
README_WORDS = 1300
# Columns of a table's row, without the targets of links. bench/results.py makes the tables of
# bench/RESULTS.md.
WIDEST_ROW = 120
# Of each block of comments in the headers.
COMMENTS = [
    (r"^(?:\\file )?(?:Who|What|Whoever|Whose) (?![^.]*\?)", "a noun that says what follows: 'The owner of a slice'"),
    (r"\b(?:Likewise|likewise|Whoever|whoever|so-manieth|wished for|for want of|Maybe|maybe)\b", "plain words"),
    (r"\b(?:[Ss]omebody|[Aa]nybody|[Ss]omeone|[Aa]nyone)\b", "'a rank', 'a process', or whatever is meant"),
    (r"\b(?:for whom?|[Tt]he same of|alike|under way)\b", "plain words: 'for callers that', 'as above', 'equal', 'in flight'"),
    (r"\bso many (?:\w+ ){0,3}(?:further|later|more|as)\b|\b(?:goes|go) on\b", "the number's name; 'continues'"),
    PERSONS,
]


def comments(text):
    """(line, text) of each block of comment lines, and of each comment behind code."""
    block = []
    for number, line in enumerate(text.split("\n") + [""], 1):
        match = re.match(r"\s*//[/!]? ?(.*)", line)
        if match:
            block.append((number, match[1]))
            continue
        if block:
            yield block[0][0], " ".join(words for _, words in block)
            block = []
        match = re.search(r"(?<!:)//(?:/<)? ?([^\"]*)$", line)
        if match:
            yield number, match[1]


def prose(text):
    """The text without code; as many lines."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"^```.*?^```|^<!--.*?-->", blank, text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", lambda match: "x" * len(match[0]), text)


root = pathlib.Path(sys.argv[1])
faults = 0
pages = sorted(root.glob("*.md")) + [page for folder in FOLDERS for page in sorted((root / folder).rglob("*.md"))]
words = len(re.sub(r"<!--.*?-->", "", (root / "README.md").read_text(), flags=re.S).split())
if words > README_WORDS:
    faults += 1
    print(f"README.md: {words} words; expected at most {README_WORDS}")
for page in pages:
    text = prose(page.read_text())
    claims = [] if str(page.relative_to(root)) in MAY_CLAIM else [CLAIMS]
    if page.name != "RESULTS.md":
        for number, line in enumerate(text.split("\n"), 1):
            row = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line)
            if row.startswith("|") and len(row) > WIDEST_ROW:
                faults += 1
                print(f"{page.relative_to(root)}:{number}: a row of {len(row)} columns; expected at most {WIDEST_ROW}, or a list in place of the table")
    for pattern, instead in INSTEAD + claims:
        for match in re.finditer(pattern, text, re.M):
            faults += 1
            print(f"{page.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: '{match[0].strip()[:80]}'; expected {instead}")
headers = sorted((root / "include").rglob("*.h*"))
for header in headers:
    for line, text in comments(header.read_text()):
        for pattern, instead in COMMENTS:
            for match in re.finditer(pattern, text):
                faults += 1
                print(f"{header.relative_to(root)}:{line}: '{text[match.start():][:80]}'; expected {instead}")
print(f"{len(pages)} pages, {len(headers)} headers, {faults} faults")
sys.exit(1 if faults else 0)
