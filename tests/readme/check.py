#!/usr/bin/env python3
"""Compiles every C++ block of README.md and docs/**/*.md.

    python3 check.py REPOSITORY --compiler CXX

A block that has its own includes or its own main() is compiled as it stands. Any other is wrapped: the umbrella and
`namespace un = unisono;` come first, and the block goes into a function unless its first line is `// file scope`.
What a block takes for granted stands before it in a comment that readers do not see, at file scope:

    <!-- given
    struct MyModel { ... };
    -->
"""
import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BLOCK = re.compile(r"(?:^<!--[ \t]*given[ \t]*\n(?P<given>.*?)^-->[ \t]*\n\s*)?^(?P<indent>[ \t]*)```(?:cpp|c\+\+)[ \t]*\n"
                   r"(?P<code>.*?)^[ \t]*```[ \t]*$", re.M | re.S)
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-x", "c++"]


def blocks(path):
    """(line of the code, translation unit) for each block of the file."""
    text = path.read_text()
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start("code")) + 1, translation_unit(path, text, match)


def translation_unit(path, text, match):
    code = match["code"]
    at = f'#line {text.count(chr(10), 0, match.start("code")) + 1} "{path}"\n'
    given = ""
    if match["given"]:
        given = f'#line {text.count(chr(10), 0, match.start("given")) + 1} "{path}"\n{match["given"]}'
    own_main = re.search(r"\bint\s+main\s*\(", code)
    own_includes = re.search(r"^\s*#\s*include", code, re.M)
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
    options = parser.parse_args()
    root = options.repository
    documents = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    found = [(path, line, unit) for path in documents if path.is_file() for line, unit in blocks(path)]

    def compile_one(item):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write(item[2])
            file.flush()
            return subprocess.run([options.compiler, *FLAGS, f"-I{root / 'include'}", file.name], capture_output=True,
                                  text=True)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(compile_one, found))
    failed = 0
    for (path, line, _), result in zip(found, results):
        if result.returncode:
            failed += 1
            print(f"{path.relative_to(root)}:{line}: the block does not compile\n{result.stderr}")
    print(f"{len(found)} blocks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
