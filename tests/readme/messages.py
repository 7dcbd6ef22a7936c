#!/usr/bin/env python3
"""What the documentation quotes of the headers is there: messages.py REPOSITORY

- Each heading of docs/troubleshooting.md in backticks is a message of the library: its words between `...` stand in a string of a header.
- docs/fields.md names each field of the structs that it describes, and no other.
"""
import pathlib, re, sys

root = pathlib.Path(sys.argv[1])
headers = {path: path.read_text() for path in sorted((root / "include").rglob("*.hpp"))}
# Literals that the compiler joins are joined, and a line that continues is one.
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
