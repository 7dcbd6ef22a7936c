#!/usr/bin/env python3
"""Compiles a program that must be refused and looks for the promised words in the diagnostics.

    python3 check.py --include DIR... --compiler CXX... FILE.cpp

The file says in comments what is expected:

    #ifdef CASE_two_reducers        starts a case, compiled with -DCASE_two_reducers
    // expect: <literal text>       must stand in the diagnostics of every compiler; any number of them
    // expect-gcc: <literal text>   the same for one compiler (also expect-clang)
    // expect-success               a control: this case must compile

A file without a case is one. White space is compared loosely. A case without any expectation is an error of the file.

Cases that must be refused are first compiled all at once, as most of the work is the same for all: what a compiler says of the lines
between `#ifdef CASE_x` and its `#endif`, or of what they instantiate, is what it says of that case. A case for which it lacks words is
compiled alone, and so is one that says CASE_x anywhere else.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

FLAGS = ["-std=c++20", "-fsyntax-only", "-fdiagnostics-color=never", "-fmessage-length=0"]
CONTEXT = re.compile(r"^In file included from |: In .*:$|: At global scope:$|^\S+:\d+:\d+:\s+(recursively )?required |^\s+from .*[:,]$")
ERROR = re.compile(r": (fatal )?error: ")
BEGIN = re.compile(r"\s*#\s*(?:ifdef\s+|if\s+defined\()CASE_(\w+)")
LINE = re.compile(r"^\s*//\s*(expect|expect-gcc|expect-clang|expect-success)(?::\s*(.*?))?\s*$")


class Case:
    def __init__(self, name):
        self.name = name
        self.expected = []  # (kind, text)
        self.success = False


def parse(path):
    whole = Case("")
    cases = []
    for line in open(path):
        if (begin := BEGIN.match(line)) and all(case.name != begin[1] for case in cases):
            cases.append(Case(begin[1]))
        match = LINE.match(line)
        if not match:
            continue
        kind, text = match.groups()
        if kind == "expect-success":
            (cases[-1] if cases else whole).success = True
        else:
            (cases[-1] if cases else whole).expected.append((kind, text))
    if unseen := set(re.findall(r"\bCASE_(\w+)", open(path).read())) - {case.name for case in cases}:
        sys.exit(f"{path}: found CASE_{', CASE_'.join(sorted(unseen))}, expected that a case begins with #ifdef CASE_NAME or #if defined(CASE_NAME)")
    if not cases:
        return [whole]
    for case in cases:  # expectations above the first case hold for all that must fail
        if not case.success:
            case.expected = whole.expected + case.expected
    return cases


def loose(text):
    return " ".join(text.split())


def lines_of(path):
    """Case -> the numbers of its lines; of those cases whose lines are all that depends on them, with no include behind."""
    text = open(path).read().splitlines()
    mentioned = [set(re.findall(r"\bCASE_(\w+)", line)) for line in text]
    last_include = max((number for number, line in enumerate(text) if line.startswith("#include")), default=-1)
    found = {}
    for number, line in enumerate(text):
        match = re.match(r"#\s*(?:ifdef\s+CASE_(\w+)|if\s+defined\(CASE_(\w+)\))\s*$", line)
        name = match and (match[1] or match[2])
        if not name or number < last_include or sum(name in names for names in mentioned) != 1:
            continue
        end = next((at for at in range(number + 1, len(text)) if re.match(r"#\s*(if|el|endif)", text[at])), None)
        if end is not None and re.match(r"#\s*endif", text[end]):
            found[name] = range(number + 1, end + 2)
    return found


def told_of(diagnostics, path, lines):
    """Case -> all that the diagnostics say of it: errors with what stands before them (where they were asked for) and behind (notes)."""
    blocks, context = [], True
    for line in diagnostics.splitlines():
        if ERROR.search(line):
            if not context:
                blocks.append([])
            context = False
        elif CONTEXT.search(line):
            if not context:
                blocks.append([])
            context = True
        if not blocks:
            blocks.append([])
        blocks[-1].append(line)
    told, last = {}, set()
    for block in blocks:
        numbers = {int(number) for number in re.findall(re.escape(path) + r":(\d+)", "\n".join(block))}
        cases = {name for name, own in lines.items() if numbers & set(own)}
        if not numbers and not CONTEXT.search(block[0]):
            # g++ mentions an instantiation only once, before the first of several errors.
            cases = last
        for name in cases:
            told[name] = told.get(name, "") + loose("\n".join(block)) + "\n"
        last = cases
    return told


def refused_together(cases, compiler, path, includes, precompiled):
    """The names of cases that are refused with the words that they expect, where several are compiled at once."""
    lines = lines_of(path)
    together = [case for case in cases if not case.success and case.name in lines and wanted_of(case, compiler)]
    if len(together) < 2:
        return set()
    command = [compiler, *FLAGS, "-ferror-limit=0" if "clang" in compiler else "-fmax-errors=0", *precompiled,
               *(f"-I{folder}" for folder in includes), *(f"-DCASE_{case.name}" for case in together), path]
    result = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))
    told = told_of(result.stderr, path, lines) if result.returncode == 1 else {}
    return {case.name for case in together if case.name in told
            and all(loose(text) in told[case.name] for text in wanted_of(case, compiler))}


def wanted_of(case, compiler):
    return [text for kind, text in case.expected if kind == "expect" or (kind == "expect-clang") == ("clang" in compiler)]


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
        return []  # the cases will report the error
    return ["-include-pch", made] if is_clang else ["-Winvalid-pch", "-include", header]


def problem_of(case, compiler, path, includes, precompiled):
    """None if all is as expected, else what is wrong."""
    wanted = wanted_of(case, compiler)
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
    cases = parse(options.file)
    with ThreadPoolExecutor(2) as pool, tempfile.TemporaryDirectory() as folder:
        preludes = dict(zip(options.compiler, pool.map(
            lambda compiler: precompile(compiler, options.file, options.include, folder), options.compiler)))
        refused = dict(zip(options.compiler, pool.map(
            lambda compiler: refused_together(cases, compiler, options.file, options.include, preludes[compiler]), options.compiler)))
        alone = [(case, compiler) for case in cases for compiler in options.compiler if case.name not in refused[compiler]]
        problems = {run: None for run in ((case, compiler) for case in cases for compiler in options.compiler)}
        problems.update(zip(alone, pool.map(
            lambda run: problem_of(*run, options.file, options.include, preludes[run[1]]), alone)))
    failed = 0
    for (case, compiler), problem in problems.items():
        label = f"{options.file}{' case ' + case.name if case.name else ''} with {compiler}"
        print(f"{'ok' if problem is None else 'FAILED'}: {label}{'' if problem is None else ': ' + problem}")
        failed += problem is not None
    print(f"{len(problems) - len(alone)} of {len(problems)} refused together, {len(alone)} compiled alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
