#!/usr/bin/env python3
"""What the documentation quotes of the headers is there: messages.py REPOSITORY

- Each heading of docs/troubleshooting.md in backticks is a message of the library: its words between `...` stand in a string of a header.
- Each name `un::Name` of a page is a name of the headers.
- What a page says is not there is not: NOT_THERE has the words of the page, and what a header would have if it were.
- The variables of extensions/launch/sockets/environment.hpp are those that headers read, and those of docs/variables.md.
- docs/fields.md names each field of the structs that it describes, and no other.
"""
import pathlib, re, sys

root = pathlib.Path(sys.argv[1])
headers = {path: path.read_text()
           for path in sorted([*(root / "include").rglob("*.hpp"), *(root / "tools/unisono_run").glob("*.?pp")])}
# Joins literals that the compiler joins, and continued lines.
everything = re.sub(r'"\s*\n\s*"', "", re.sub(r"\\\n", "", "\n".join(headers.values())))
everything = re.sub(r"\s+", " ", everything)
faults = []

for message in re.findall(r"^### `(.*?)`", (root / "docs/troubleshooting.md").read_text(), re.M):
    if message == "incomplete type":  # the compiler's words
        continue
    for words in message.split("..."):
        words = words.removeprefix("unisono: ").strip()
        if words and re.sub(r"\s+", " ", words) not in everything:
            faults.append(f"docs/troubleshooting.md: no header says '{words}'")


code = re.sub(r"//[^\n]*|/\*.*?\*/", "", "\n".join(headers.values()), flags=re.S)
names = set(re.findall(r"\w+", code))
pages = [root / "README.md", root / "examples/README.md", *sorted((root / "docs").rglob("*.md"))]
for page in pages:
    for name in sorted(set(re.findall(r"\b(?:un|unisono)::(?:testing::)?(\w+)", page.read_text())) - names):
        # CMake's targets.
        if name not in ("thrust", "unisono", "mpi", "libfabric", "cuda", "nccl", "core", "compiled"):
            faults.append(f"{page.relative_to(root)}: no header declares {name}")

NOT_THERE = [
    ("docs/coming_from.md", "`hysteresis` is not there", r"\bhysteresis\b"),
    ("docs/coming_from.md", "1-bit Adam, 0/1 Adam; offloading to CPU or disk | not there", r"\b(OneBitAdam|ZeroOneAdam|\w*[Oo]ffload\w*)\b"),
    ("docs/coming_from.md", "autograd, modules, tensors | not there", r"\b(Autograd|autograd|Module|nn)\b"),
    ("docs/compression.md", "1-bit Adam is absent", r"\bOneBitAdam\b"),
    ("docs/updates.md", "The paper's 4-bit format and fragments by layers are absent", r"\b(Int4Wire|FourBit\w*|LayerFragments)\b"),
    ("docs/how_to/learning_rate.md", "is not a policy here", r"\b\w*Plateau\w*\b"),
]
for page, words, pattern in NOT_THERE:
    if words not in (root / page).read_text():
        faults.append(f"{page} does not say '{words}'; NOT_THERE in tests/docs/readme/messages.py expects it")
    if found := re.search(pattern, code):
        faults.append(f"{page}: '{words}', and yet the headers have {found[0]}")


read = set(re.findall(r'"UNISONO_([A-Z_]+)"', code))
listed = next(text for path, text in headers.items() if path.name == "environment.hpp")
known = set(re.findall(r"[A-Z_]+", re.search(r"known_variables =(.*?);", listed, re.S)[1]))
faults += [f"extensions/launch/sockets/environment.hpp: UNISONO_{name} is missing" for name in sorted(read - known)]
faults += [f"extensions/launch/sockets/environment.hpp: no header reads UNISONO_{name}" for name in sorted(known - read)]
table = "".join(re.findall(r"^\| (.*?) \|", (root / "docs/variables.md").read_text(), re.M))
described = set(re.findall(r"\bUNISONO_([A-Z_]+)", table))
faults += [f"docs/variables.md: UNISONO_{name} is not described" for name in sorted(known - described)]
faults += [f"docs/variables.md: there is no UNISONO_{name}" for name in sorted(described - known)]


def members(name):
    """Names of the data members, and of the public functions of a class."""
    body = next(m[1] for text in headers.values() if (m := re.search(rf"^(?:struct|class) {name}(?: final)?(?: : [\w: ]+)? {{\n(.*?)^}};", text, re.M | re.S)))
    body = re.sub(r"///?.*", "", body)
    fields = re.findall(r"^\s*(?:const )?[\w:<>]+(?: ?\*)?\s+(\w+)\s*=\s*[^;(]*;", re.sub(r"\s*\n\s*=", " =", body), re.M)
    return [field for field in fields if not field.endswith("_")]


text = (root / "docs/fields.md").read_text()
sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
for name, section in {"FitOptions": "FitOptions", "UpdateReport": "UpdateReport", "StateHash": "StateHash"}.items():
    described = {word for row in re.findall(r"^\| (`.*?) \|", sections[section], re.M) for word in re.findall(r"`(\w+)`", row)}
    there = set(members(name))
    assert there, f"no field of {name} was found"
    faults += [f"docs/fields.md: {name}.{field} is not described" for field in sorted(there - described)]
    faults += [f"docs/fields.md: {name} has no {field}" for field in sorted(described - there)]

print(*faults, f"{len(faults)} faults", sep="\n")
sys.exit(1 if faults else 0)
