#!/usr/bin/env python3
"""Follows pages word for word: saves their files, runs their commands, compares what these print.

    python3 follow.py REPOSITORY --compiler CXX [PAGE...]      by default all pages of docs that have commands

A block of C++ whose first line is `// NAME.cpp` or `// NAME.hpp` is that file. In a ```console block, a line that begins with `$ ` is a command for bash, and the lines
behind it are what it prints, on stdout and then on stderr. `...` stands for any words, and on a line of its own for any lines; `<!-- numbers vary -->` before a block says that only the words count. Each
page starts in an empty folder in which `unisono` is the repository, and `g++` is the given compiler without optimisation. A program of the
repository's own sources that several pages make by one command is made once.

A page's blocks of shell (```sh) are looked at, too: bash must parse them, and each file or option of this repository that they name must be there.
"""
import argparse
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

NAMED_FILE = re.compile(r"// (?P<name>[\w/-]+\.[ch]pp)\n")
BLOCK = re.compile(r"(?P<varies>^<!-- numbers vary -->\n)?^```(?P<kind>cpp|console|sh)[ \t]*\n(?P<text>.*?)^```[ \t]*$", re.M | re.S)
PATH_IN_REPOSITORY = re.compile(r"(?<![\w./-])(?:tools|tests|bench|examples|docs|conan|cmake|\.ci)/[\w./-]*[\w]")
PRESET = re.compile(r"--preset[ =]([\w-]+)")
LIMIT_S = 120


def sessions(text):
    """(command, what it prints) of a console block."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found:
            found[-1][1].append(line)
    return found


def fits(expected, printed):
    """Whether lines are as expected, `...` being any."""
    if not expected:
        return not printed
    if expected[0] == "...":
        return any(fits(expected[1:], printed[n:]) for n in range(len(printed) + 1))
    pattern = ".*".join(re.escape(words) for words in expected[0].split("..."))
    return bool(printed) and re.fullmatch(pattern, printed[0]) is not None and fits(expected[1:], printed[1:])


def words(lines):
    return [re.sub(r"-{2,}", "--", re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "N", line))).strip() for line in lines]


def own_program(command):
    """The program's name, if the command compiles sources of the repository alone."""
    made = re.fullmatch(r"g\+\+(?: -[\w+=]+| -I unisono/include| unisono/[\w/*.]+)+ -o ([\w-]+)(?: -\w+)*", command)
    return made and made[1]


def follow(page, root, compiler, made):
    """What is wrong, a line each. `made`: a command that printed nothing -> the program of the repository that it made."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root.resolve(), Path(folder, "unisono"))
        commands = Path(folder, ".commands")
        commands.mkdir()
        for name in ("g++", "clang++"):
            (commands / name).write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0 -Wall -Wextra -Werror\n')
            (commands / name).chmod(0o755)
        environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
        unused = set()
        # Replaces the port of the pages, which another test may use.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start("text")) + 1
            if block["kind"] == "cpp":
                if named := NAMED_FILE.match(block["text"]):
                    Path(folder, named["name"]).write_text(block["text"])
                    unused.add(named["name"])
                continue
            if block["kind"] == "sh":
                continue
            for command, expected in sessions(block["text"].replace("29500", port)):
                unused -= {name for name in unused if name in command}
                if command in made and not expected:
                    Path(folder, own_program(command)).write_bytes(made[command])
                    Path(folder, own_program(command)).chmod(0o755)
                    continue
                try:
                    ran = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, timeout=LIMIT_S,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    printed = (ran.stdout + ran.stderr).splitlines()
                except subprocess.TimeoutExpired:
                    yield f"{line}: '{command}' has not ended after {LIMIT_S} s"
                    return
                as_expected = fits(words(expected), words(printed)) if block["varies"] else fits(expected, printed)
                if not as_expected:
                    yield "\n".join([f"{line}: '{command}' printed", *printed, "expected", *expected])
                    return
                if not printed and (own := own_program(command)):
                    made[command] = Path(folder, own).read_bytes()
        for name in unused:
            if name.endswith(".cpp"):
                yield f"no command compiles {name}"


def wrong_in_shell(page, root):
    """Blocks of shell are not run; but what they name is there."""
    text = page.read_text()
    presets = (root / "CMakePresets.json").read_text() if (root / "CMakePresets.json").is_file() else ""
    for block in BLOCK.finditer(text):
        if block["kind"] == "cpp":
            continue
        line = text.count("\n", 0, block.start("text")) + 1
        shell = block["text"] if block["kind"] == "sh" else "\n".join(command for command, _ in sessions(block["text"]))
        parsed = subprocess.run(["bash", "-n", "-c", shell], capture_output=True, text=True)
        if parsed.returncode:
            yield f"{line}: bash does not parse this: {parsed.stderr.strip()}"
        for path in PATH_IN_REPOSITORY.findall(shell):
            if not (root / path).exists():
                yield f"{line}: there is no {path}"
        for preset in PRESET.findall(shell):
            if f'"{preset}"' not in presets:
                yield f"{line}: there is no preset '{preset}'"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=Path)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("pages", nargs="*", type=Path)
    options = parser.parse_intermixed_args()
    root = options.repository
    pages = options.pages or [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    failed = followed = 0
    made = {}
    for page in pages:
        if not page.is_file():
            continue
        faults = list(wrong_in_shell(page, root))
        if re.search(r"^```console", page.read_text(), re.M):
            followed += 1
            faults += follow(page, root, shlex.quote(shutil.which(options.compiler) or options.compiler), made)
        failed += len(faults)
        for fault in faults:
            print(f"{page}:{fault}")
    print(f"{followed} pages followed, {failed} faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
