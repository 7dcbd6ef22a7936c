"""The documentation check must wrap what is incomplete, take what is complete, and see a block that does not compile; that of links, one
that leads nowhere; that of commands, one that prints something else."""
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).with_name("check.py")
FENCE = "```"

CASES = [
    ("no document", True, None),
    ("no block", True, "# Title\n"),
    ("statements", True, f"{FENCE}cpp\nint n = un::one;\n++n;\n{FENCE}\n"),
    ("file scope", True, f"{FENCE}cpp\n// file scope\ntemplate <class T> struct S {{}};\n{FENCE}\n"),
    ("complete", True, f"{FENCE}cpp\n#include <vector>\nint main() {{ std::vector<int> v; return int(v.size()); }}\n{FENCE}\n"),
    ("given", True, f"<!-- given\nstruct Model {{ int n; }};\n-->\n{FENCE}cpp\nModel m{{1}};\n{FENCE}\n"),
    ("not C++", True, f"{FENCE}bash\nint n = ;\n{FENCE}\n"),
    ("broken", False, f"text\n{FENCE}cpp\nint n = ;\n{FENCE}\n"),
    ("second of two", False, f"{FENCE}cpp\nint n = 1;\n{FENCE}\n\n{FENCE}cpp\nint m = missing;\n{FENCE}\n"),
]

# Blocks without includes are compiled together, and must still not see each other.
CASES += [
    ("two with the same names", True, f"{FENCE}cpp\n// file scope\nstruct S {{}};\n{FENCE}\n\n{FENCE}cpp\n// file scope\nstruct S {{ int n; }};\n{FENCE}\n"),
    ("the second takes names of the first", False, f"{FENCE}cpp\n// file scope\nstruct S {{}};\n{FENCE}\n\n{FENCE}cpp\nS s;\n{FENCE}\n"),
    ("two that do not compile together", True, f"{FENCE}cpp\n// file scope\nnamespace unisono {{ struct S {{}}; }}\nun::S s;\n{FENCE}\n\n"
                                               f"{FENCE}cpp\nint n = un::one;\n{FENCE}\n"),
]

PROGRAM = f'{FENCE}cpp\n#include <cstdio>\nint main() {{ std::puts("two"); }}\n{FENCE}\n\n'
CASES += [
    ("a program that prints what it says", True, f"{PROGRAM}{FENCE}text\ntwo\n{FENCE}\n"),
    ("a program that does not", False, f"{PROGRAM}{FENCE}text\nthree\n{FENCE}\n"),
    ("a program that fails", False, f"{FENCE}cpp\n#include <vector>\nint main() {{ return 1; }}\n{FENCE}\n\n{FENCE}text\n{FENCE}\n"),
]

NAMED = f'{FENCE}cpp\n// two.cpp\n#include <cstdio>\nint main() {{ std::puts("two 2"); }}\n{FENCE}\n\n'
BUILT = f"{NAMED}{FENCE}console\n$ g++ -O2 two.cpp -o two\n{FENCE}\n"
FOLLOWED = [
    ("a program and what it prints", True, f"{BUILT}{FENCE}console\n$ ./two\ntwo 2\n{FENCE}\n"),
    ("something else", False, f"{BUILT}{FENCE}console\n$ ./two\ntwo 3\n{FENCE}\n"),
    ("another number, where numbers vary", True, f"{BUILT}<!-- numbers vary -->\n{FENCE}console\n$ ./two\ntwo 3\n{FENCE}\n"),
    ("another word, where numbers vary", False, f"{BUILT}<!-- numbers vary -->\n{FENCE}console\n$ ./two\nthree 2\n{FENCE}\n"),
    ("any lines", True, f"{BUILT}{FENCE}console\n$ ./two; ./two\n...\ntwo 2\n{FENCE}\n"),
    ("any words", True, f"{BUILT}{FENCE}console\n$ ./two\nt...2\n{FENCE}\n"),
    ("a line too few", False, f"{BUILT}{FENCE}console\n$ ./two; ./two\ntwo 2\n{FENCE}\n"),
    ("a file that no command compiles", False, f"{NAMED}{FENCE}console\n$ true\n{FENCE}\n"),
    ("the repository", True, f"{FENCE}console\n$ ls unisono/README.md\nunisono/README.md\n{FENCE}\n"),
    ("shell that is not run", True, f"{FENCE}sh\nfalse\n{FENCE}\n"),
    ("shell that bash does not parse", False, f"{FENCE}sh\nfor x in\n{FENCE}\n"),
    ("a script that is not there", False, f"{FENCE}sh\nbash tools/no_such.sh\n{FENCE}\n"),
    ("a preset that is not there", False, f"{FENCE}sh\ncmake --preset none\n{FENCE}\n"),
]

LINKS = [
    ("a file beside it", True, "[other](other.md), [its part](other.md#a-part-of-it), [here](#title), [far](https://nowhere.invalid)"),
    ("code is no link", True, f"`[a](b)`\n{FENCE}\n[a](b)\n{FENCE}\n"),
    ("no such file", False, "[other](another.md)"),
    ("no such heading", False, "[other](other.md#another-part)"),
    ("out of the project", False, "[other](../../../etc/passwd)"),
]

# What tools/markdown.py writes of a page.
FORMATTED = [
    ("YAML at the head of a page", "---\nname: A fault\nabout: An error. Or a hang\n---\n\nOne. Two.\n", "---\nname: A fault\nabout: An error. Or a hang\n---\n\nOne.\nTwo.\n"),
    ("a rule that is no head", "---\n\nOne. Two.\n", "---\n\nOne.\nTwo.\n"),
    ("a possessive at the end of a sentence", "The bits are the host's. A rank waits.\n", "The bits are the host's.\nA rank waits.\n"),
    ("an initial", "By J. Doe and others.\n", "By J. Doe and others.\n"),
]

failed = 0
for name, text, expected in FORMATTED:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.md")
        page.write_text(text)
        result = subprocess.run([sys.executable, str(CHECK.parents[3] / "tools/markdown.py"), str(page)], capture_output=True, text=True)
        if result.returncode or page.read_text() != expected:
            failed += 1
            print("FAILED:", name, page.read_text(), result.stdout, result.stderr)
for name, good, text in CASES:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "include" / "unisono").mkdir(parents=True)
        (root / "include" / "unisono" / "unisono.hpp").write_text("#pragma once\nnamespace unisono { inline constexpr int one = 1; }\n")
        if text is not None:
            (root / "README.md").write_text(text)
        result = subprocess.run([sys.executable, str(CHECK), folder, "--compiler", sys.argv[1]], capture_output=True,
                                text=True)
    as_expected = (result.returncode == 0) == good and not result.stderr
    print(f"{'ok' if as_expected else 'FAILED'}: {name}")
    if not as_expected:
        failed += 1
        print(result.stdout, result.stderr)
for name, good, text in LINKS:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "other.md").write_text("# Other\n\n## A `part` of it!\n")
        Path(folder, "page.md").write_text(f"# Title\n\n{text}\n")
        result = subprocess.run([sys.executable, str(CHECK.with_name("links.py")), folder], capture_output=True, text=True)
    if (result.returncode == 0) != good or result.stderr:
        failed += 1
        print("FAILED:", name, result.stdout, result.stderr)
for name, good, text in FOLLOWED:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "README.md").write_text(text)
        result = subprocess.run([sys.executable, str(CHECK.with_name("follow.py")), folder, "--compiler", sys.argv[1]], capture_output=True,
                                text=True)
    as_expected = (result.returncode == 0) == good and not result.stderr
    print(f"{'ok' if as_expected else 'FAILED'}: {name}")
    if not as_expected:
        failed += 1
        print(result.stdout, result.stderr)
sys.exit(1 if failed else 0)
