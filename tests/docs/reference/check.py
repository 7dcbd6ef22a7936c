"""The reference can be built from the headers' comments without a warning, and what is public says what it is.

    check.py ROOT FOLDER

Types, functions, concepts and constants in the library's own namespaces must have a comment. Exempt, because one of their kind says it
for all: members (a concept's are explained where the concept is), deduction guides, overloads of name_of, and what is in `detail`.
"""

import pathlib
import re
import subprocess
import sys
from xml.etree import ElementTree

EXEMPT = re.compile(r"\) *->|\bname_of\(|\(macro definition\)|of file ")
OWN = r"unisono(?:::(?:schedule|sampling|testing))?"
COMPOUND = re.compile(rf"warning: Compound {OWN}::\w+ is not documented")
MEMBER = re.compile(rf"warning: Member .* of namespace {OWN} is not documented")


def faults(warnings: str) -> list[str]:
    """The warnings that count: all but those of things that need no comment."""
    found = []
    for line in warnings.splitlines():
        if "is not documented" not in line:
            if line.strip():
                found.append(line)
        elif (COMPOUND.search(line) or MEMBER.search(line)) and not EXEMPT.search(line):
            found.append(line)
    return found


def bare_concepts(folder: pathlib.Path) -> list[str]:
    """Concepts without a comment: Doxygen does not warn of them, and makes no page of them."""
    found = []
    for page in sorted(folder.glob("concept*.xml")):
        concept = ElementTree.parse(page).getroot().find("compounddef")
        name = concept.findtext("compoundname")
        if re.fullmatch(OWN + r"::\w+", name) and not "".join(concept.find("briefdescription").itertext()).strip():
            found.append(f"{concept.find('location').get('file')}: concept {name} is not documented")
    return found


def self_test() -> None:
    one = "a.hpp:3: warning: "
    assert faults(one + "Compound unisono::A is not documented.")
    assert faults(one + "Compound unisono::testing::A is not documented.")
    assert faults(one + "Member f(int x) (function) of namespace unisono is not documented.")
    assert faults(one + "Unsupported xml/html tag <name> found")
    assert not faults(one + "Compound unisono::A::Run is not documented.")
    assert not faults(one + "Compound unisono::schedule::detail::A is not documented.")
    assert not faults(one + "Member f() (function) of struct unisono::A is not documented.")
    assert not faults(one + "Member A(int) -> A (function) of namespace unisono is not documented.")
    assert not faults(one + "Member name_of(A a) (function) of namespace unisono is not documented.")


def main() -> int:
    self_test()
    root, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "warnings.txt"
    settings = (root / "docs/reference/Doxyfile").read_text() + (
        f"\nOUTPUT_DIRECTORY = {folder}\nWARN_LOGFILE = {log}\nWARN_IF_UNDOCUMENTED = YES\nWARN_AS_ERROR = NO\n"
        "GENERATE_HTML = NO\nGENERATE_XML = YES\nXML_PROGRAMLISTING = NO\n"
    )
    subprocess.run(["doxygen", "-"], input=settings, text=True, cwd=root, check=True, timeout=300)
    found = faults(log.read_text()) + bare_concepts(folder / "xml")
    print("\n".join(found))
    documented = len(list((folder / "xml").glob("*.xml")))
    print(f"{documented} pages of the reference, {len(found)} faults")
    if documented < 300:
        print("expected at least 300 pages: the reference does not have the headers")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
