#!/usr/bin/env python3
"""Compiles a program that must be refused and looks for the promised words in the diagnostics.

    python3 check.py --include DIR... --compiler CXX... FILE.cpp

The file says in comments what is expected:

    // case: two_reducers           starts a case, compiled with -DCASE_two_reducers; without one, the file is one case
    // expect: <literal text>       must stand in the diagnostics of every compiler; any number of them
    // expect-gcc: <literal text>   the same for one compiler (also expect-clang)
    // expect-success               a control: this case must compile

White space is compared loosely. A case without any expectation is an error of the file.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

FLAGS = ["-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never", "-fmessage-length=0"]
LINE = re.compile(r"^\s*//\s*(case|expect|expect-gcc|expect-clang|expect-success)(?::\s*(.*?))?\s*$")


class Case:
    def __init__(self, name):
        self.name = name
        self.expected = []  # (kind, text)
        self.success = False


def parse(path):
    whole = Case("")
    cases = []
    for line in open(path):
        match = LINE.match(line)
        if not match:
            continue
        kind, text = match.groups()
        if kind == "case":
            cases.append(Case(text))
        elif kind == "expect-success":
            (cases[-1] if cases else whole).success = True
        else:
            (cases[-1] if cases else whole).expected.append((kind, text))
    if not cases:
        return [whole]
    for case in cases:  # expectations above the first case hold for all that must fail
        if not case.success:
            case.expected = whole.expected + case.expected
    return cases


def loose(text):
    return " ".join(text.split())


def precompile(compiler, path, includes, folder):
    """The options by which a case gets the file's leading includes precompiled, as they are most of the work."""
    lines = []
    for line in open(path):
        if line.startswith("#include "):
            lines.append(line)
        elif line.strip() and not line.startswith("//"):
            break
    folder = os.path.join(folder, os.path.basename(compiler))
    os.makedirs(folder)
    header = os.path.join(folder, "prelude.hpp")
    with open(header, "w") as file:
        file.writelines(lines)
    is_clang = "clang" in compiler
    made = header + (".pch" if is_clang else ".gch")
    flags = [flag for flag in FLAGS if flag != "-fsyntax-only"]
    command = [compiler, *flags, *(f"-I{include}" for include in includes), "-x", "c++-header", header, "-o", made]
    if subprocess.run(command, capture_output=True).returncode != 0:
        return []  # the cases will say what is wrong
    return ["-include-pch", made] if is_clang else ["-Winvalid-pch", "-include", header]


def problem_of(case, compiler, path, includes, precompiled):
    """None if all is as expected, else what is wrong."""
    wanted = [text for kind, text in case.expected
              if kind == "expect" or (kind == "expect-clang") == ("clang" in compiler)]
    if not case.success and not wanted:
        return "the case expects nothing; say `// expect: text` or `// expect-success`"
    if case.success and wanted:
        return "the case expects success and words of a failure"
    command = [compiler, *FLAGS, *precompiled, *(f"-I{folder}" for folder in includes)]
    if case.name:
        command.append(f"-DCASE_{case.name}")
    result = subprocess.run([*command, path], capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    diagnostics = loose(result.stderr)
    if case.success:
        return None if result.returncode == 0 else "must compile, but does not:\n" + result.stderr
    if result.returncode == 0:
        return "must not compile, but does"
    missing = [text for text in wanted if loose(text) not in diagnostics]
    if missing:
        return "".join(f"the diagnostics lack: {text}\n" for text in missing) + result.stderr[:8000]
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--compiler", action="append", required=True)
    parser.add_argument("file")
    options = parser.parse_args()
    runs = [(case, compiler) for case in parse(options.file) for compiler in options.compiler]
    with ThreadPoolExecutor(2) as pool, tempfile.TemporaryDirectory() as folder:
        preludes = dict(zip(options.compiler, pool.map(
            lambda compiler: precompile(compiler, options.file, options.include, folder), options.compiler)))
        problems = list(pool.map(
            lambda run: problem_of(*run, options.file, options.include, preludes[run[1]]), runs))
    failed = 0
    for (case, compiler), problem in zip(runs, problems):
        label = f"{options.file}{' case ' + case.name if case.name else ''} with {compiler}"
        print(f"{'ok' if problem is None else 'FAILED'}: {label}{'' if problem is None else ': ' + problem}")
        failed += problem is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
