#!/usr/bin/env python3
"""Compiles every C++ block of README.md and docs/**/*.md.

    python3 check.py REPOSITORY --compiler CXX              of all pages
    python3 check.py REPOSITORY --page docs/elastic.md      of one page

A block that has its own includes or its own main() is compiled as it stands. Any other is wrapped: the umbrella and
`namespace un = unisono;` come first, and the block goes into a function unless its first line is `// file scope`. A whole
program with a ```text block right behind it is run, and must print that.
What a block takes for granted stands before it in a comment that readers do not see, at file scope:

    <!-- given
    struct MyModel { ... };
    -->

Kernels' launches, name<<<...>>>(...), are compiled as calls. CUDA and NCCL are the stand-ins of tests/extensions/nccl/stand_in. A block that needs MPI or libfabric is
skipped, and a line says so, where these are not installed. Fences marked `cc` or `C++` are not compiled: nvcc alone compiles a Trainer on a device, and Thrust.

A block whose first line is `// NAME.cpp` or `// NAME.hpp` is a file for follow.py, which runs the page's commands.

Blocks without includes and main() are one translation unit, each in a name space of its own, as most of the work is the same for all; if that does
not compile, each is compiled alone.
"""
import argparse
import functools
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OUTPUT = re.compile(r"\s*^```text[ \t]*\n(?P<output>.*?)^```[ \t]*$", re.M | re.S)
BLOCK = re.compile(r"(?:^<!--[ \t]*given[ \t]*\n(?P<given>.*?)^-->[ \t]*\n\s*)?^(?P<indent>[ \t]*)```(?:cpp|c\+\+)[ \t]*\n"
                   r"(?P<code>.*?)^[ \t]*```[ \t]*$", re.M | re.S)
NAMED_FILE = re.compile(r"// [\w/-]+\.[ch]pp\n")
ABSENT = re.compile(r"fatal error: '?(mpi\.h|rdma/[\w/.]+)'?:? ")
LAUNCH = re.compile(r"<<<.*?>>>\((?:\.\.\.)?")
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unused"]


class Skipped(str):
    """Why a block cannot be compiled here."""


@functools.cache
def options_of_mpi():
    for name in ("ompi-cxx", "ompi", "mpich"):
        try:
            found = subprocess.run(["pkg-config", "--cflags", name], capture_output=True, text=True, check=True).stdout.split()
            return [re.sub("^-I", "-isystem", option) for option in found]
        except (OSError, subprocess.CalledProcessError):
            continue
    return []


def blocks(path):
    """(line of the code, translation unit, what it prints or None, whether it can stand beside others) for each block of the file."""
    text = path.read_text()
    for match in BLOCK.finditer(text):
        if NAMED_FILE.match(match["code"]):
            continue
        own_main = re.search(r"\bint\s+main\s*\(", match["code"])
        output = OUTPUT.match(text, match.end()) if own_main else None
        yield (text.count("\n", 0, match.start("code")) + 1, translation_unit(path, text, match),
               output and output["output"], not own_main and not includes_by_itself(match["code"]))


def includes_by_itself(code):
    return re.search(r"^\s*#\s*include", code, re.M)


def together(units):
    """One translation unit of several, each in a name space of its own, behind what any of them includes."""
    heads, bodies = [], []
    for number, unit in enumerate(units):
        head, body = [], []
        for line in unit.splitlines():
            (head if re.match(r"\s*#\s*include\b", line) else body).append(line)
        heads += [line for line in head if line not in heads]
        bodies.append(f"namespace block_{number} {{\n" + "\n".join(body) + "\n}\n")
    return "\n".join(heads) + "\n" + "".join(bodies)


def translation_unit(path, text, match):
    code = LAUNCH.sub("(", match["code"])
    at = f'#line {text.count(chr(10), 0, match.start("code")) + 1} "{path}"\n'
    given = ""
    if match["given"]:
        given = f'#line {text.count(chr(10), 0, match.start("given")) + 1} "{path}"\n{match["given"]}'
    own_main = re.search(r"\bint\s+main\s*\(", code)
    own_includes = includes_by_itself(code)
    prelude = ("" if own_includes else "#include <unisono/unisono.hpp>\n") + given
    if not re.search(r"\bnamespace\s+un\s*=", code) and not own_includes:
        prelude += "namespace un = unisono;\n"
    if own_main or own_includes or code.lstrip().startswith("// file scope"):
        return prelude + at + code
    return prelude + "[[maybe_unused]] static void block_of_the_documentation() {\n" + at + code + "}\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=Path)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--page", action="append", type=Path, help="this page alone, relative to REPOSITORY; may be repeated")
    options = parser.parse_args()
    root = options.repository
    documents = [root / page for page in options.page or []] or [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    if absent := [page for page in options.page or [] if not (root / page).is_file()]:
        parser.error(f"there is no page {absent[0]} in {root}")
    found = [(path, *block) for path in documents if path.is_file() for block in blocks(path)]

    # Compiled once: most blocks begin with the umbrella, which takes most of their time.
    work = tempfile.TemporaryDirectory()
    umbrella = Path(work.name, "umbrella.hpp")
    umbrella.write_text("#include <unisono/unisono.hpp>\n")
    if (root / "include/unisono/unisono.hpp").is_file():
        subprocess.run([options.compiler, *FLAGS, "-pthread", f"-I{root / 'include'}", "-x", "c++-header", umbrella, "-o",
                        f"{umbrella}.gch"], check=True)

    def fault_of(item):
        _, _, unit, output, _ = item
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder, "block.cpp"), Path(folder, "block")
            source.write_text(unit)
            command = [options.compiler, *FLAGS, "-pthread", f"-I{root / 'include'}", source]
            command += [f"-I{root / 'tests/extensions/nccl/stand_in'}", *options_of_mpi()]
            command += ["-include", umbrella] if "#include <unisono/unisono.hpp>" in unit else []
            command += ["-fsyntax-only"] if output is None else ["-o", program]
            compiled = subprocess.run(command, capture_output=True, text=True)
            if compiled.returncode:
                absent = ABSENT.search(compiled.stderr)
                return Skipped(f"skipped in part: no {absent[1]}") if absent else f"the block does not compile\n{compiled.stderr}"
            if output is None:
                return None
            ran = subprocess.run([program], capture_output=True, text=True, timeout=120, cwd=folder)
            if ran.returncode or ran.stdout != output:
                return f"the program ended with {ran.returncode}, after\n{ran.stdout}{ran.stderr}expected 0, and\n{output}"
            return None

    united = [item for item in found if item[4]]
    with ThreadPoolExecutor(2) as pool:
        unity = pool.submit(fault_of, (None, None, together([item[2] for item in united]), None, None)) if len(united) > 1 else None
        others = [item for item in found if unity is None or item not in united]
        faults = dict(zip(others, pool.map(fault_of, others)))
        if unity and unity.result():
            faults.update(zip(united, pool.map(fault_of, united)))
    for item in found:
        path, line, *_ = item
        if fault := faults.get(item):
            print(f"{path.relative_to(root)}:{line}: {fault}")
    failed = sum(fault is not None and not isinstance(fault, Skipped) for fault in faults.values())
    print(f"{len(found)} blocks, {sum(output is not None for _, _, _, output, _ in found)} of them run, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
