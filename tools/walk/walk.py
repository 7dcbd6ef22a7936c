#!/usr/bin/env python3
"""Counts the library's functions that a call passes: what somebody reads who follows a gradient through it.

walk.py step|all_reduce|sampler [--include FOLDER] [--stops]   prints the counts, with --stops each function, too
walk.py --check FILE     compares the counts with those in FILE (docs/architecture.md), and its blocks of code with the
                         headers that the page links to; fails if one is in none, or if the counts have grown by
                         more than the few functions in which runs differ, by which rank comes first

A program (walk.cpp) is compiled with g++ -O0 -finstrument-functions, which reports each function as it is entered, and
runs two ranks over shared memory. Counted are the functions of include/unisono that rank 0 enters in its calls, after
three that make plans and memory, but for
 - functions of at most three lines, and lambdas, which are read where they are called;
 - core/ (containers, text, time) and the insides of arithmetic/'s kernels;
 - what a rank does only while it waits, and to wake others that sleep;
 - constructors, destructors and comparisons that the compiler makes.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WALKS = {
    "step": "`Trainer::step` to the optimizer over shared memory, and back",
    "all_reduce": "`un::all_reduce` over shared memory",
    "sampler": "`Replicas::shape` (who hosts which replica) to the last micro-batch that the sampler gives",
}
WAITING = {"wait_long", "wait_for_run", "announce", "suspect", "idle", "is_due", "wake_group", "wake", "one_sleeps"}
MOST_LINES = 3
ROOM = 3  # runs may differ by this many functions, and by one file


def without_arguments(name):
    """A demangled name without template arguments and parameters."""
    name = re.sub(r"operator(<=>|<=|>=|<<|>>|->|<|>|\(\))", "operator", name)
    depth, text = 0, ""
    for letter in name:
        depth += letter in "<({["
        if depth == 0:
            text += letter
        depth -= letter in ">)}]"
    return text.replace("unisono::v0::", "").replace(" const", "").split(" ")[-1] or name


def lines_of(path, first):
    """Lines from the one where a function begins to the one that closes its body; 0 if nobody has written it."""
    depth, opened = 0, False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if number < first:
                continue
            if number == first and re.match(r"\s*(class|struct)\b|.* = default;$", line):
                return 0
            for letter in re.sub(r'"(\\.|[^"\\])*"|//.*', "", line):
                if letter == "{":
                    depth, opened = depth + 1, True
                depth -= letter == "}"
            if opened and depth == 0:
                return number - first + 1
    return 0


def entered(include, what, folder):
    """(depth, demangled name, file, line) of each function, in the order of the first entries."""
    program = os.path.join(folder, "walk")
    if not os.path.exists(program):
        subprocess.run(["g++", "-std=c++20", "-O0", "-g1", "-finstrument-functions", "-pthread", "-I", include,
                        os.path.join(HERE, "walk.cpp"), "-o", program], check=True)
    trace = subprocess.run([program, what], check=True, text=True, capture_output=True, timeout=300).stdout
    calls = [line.split() for line in trace.splitlines()]
    addresses = sorted({address for _, address in calls})
    out = subprocess.run(["addr2line", "-f", "-C", "-e", program], input="\n".join(addresses), check=True, text=True,
                         capture_output=True).stdout.splitlines()
    known = {}
    for i, address in enumerate(addresses):
        path, _, line = out[2 * i + 1].partition(" (")[0].rpartition(":")
        known[address] = (out[2 * i], os.path.realpath(path), int(line) if line.isdigit() else 0)
    return [(int(depth), *known[address]) for depth, address in calls]


def stops(include, what, folder):
    """The functions that count, as (depth, name, file below include/unisono, lines)."""
    library = os.path.realpath(os.path.join(include, "unisono")) + os.sep
    found, seen, inside = [], set(), None
    for depth, name, path, line in entered(include, what, folder):
        if inside is not None and depth > inside:
            continue
        inside = None
        if not path.startswith(library):
            continue
        short, below = without_arguments(name), path[len(library):]
        if short.split("::")[-1] in WAITING:
            inside = depth
            continue
        if below.startswith("arithmetic/"):
            inside = depth
        if (path, line) in seen or below.startswith("core/") or "{lambda" in name:
            continue
        seen.add((path, line))
        lines = lines_of(path, line)
        if lines > MOST_LINES:
            found.append((depth, short, below, lines))
    return found


def stale_blocks(page, include):
    """The blocks of code of a page, each line without its indentation, that are in no header to which it links."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    sources = []
    for header in re.findall(r"\(\.\./include/(\S+?\.hpp)\)", text):
        with open(os.path.join(include, header), encoding="utf-8") as file:
            sources.append("\n".join(line.strip() for line in file))
    quoted = re.findall(r"```text\n(.*?)\n```", text, re.DOTALL)
    if not quoted:
        sys.exit(f"walk.py: {page} quotes no code; expected a block of Update::close")
    blocks = ["\n".join(line.strip() for line in block.splitlines()) for block in quoted]
    return [block for block in blocks if not any(block in source for source in sources)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", choices=WALKS)
    options.add_argument("--include", default=os.path.join(ROOT, "include"), help="folder of the headers")
    options.add_argument("--stops", action="store_true", help="print each function")
    options.add_argument("--check", metavar="FILE", help="compare with the counts in this file")
    options = options.parse_args()
    if (options.what is None) == (options.check is None):
        sys.exit("walk.py: give step, all_reduce, sampler or --check FILE (--help shows the options)")
    grown = False
    with tempfile.TemporaryDirectory() as folder:
        for what in WALKS if options.check else [options.what]:
            found = stops(options.include, what, folder)
            functions, files = len(found), len({file for _, _, file, _ in found})
            print(f"{WALKS[what]}: {functions} functions in {files} files")
            if options.stops:
                for depth, name, file, lines in found:
                    print(f"{'  ' * min(depth, 20)}{name}  {file}, {lines} lines")
            if options.check:
                with open(options.check, encoding="utf-8") as file:
                    told = re.search(re.escape(f"| {WALKS[what]} |") + r" *(\d+) \| *(\d+) \|", file.read())
                if told is None:
                    sys.exit(f"walk.py: {options.check} has no row for {what}; expected '| {WALKS[what]} | N | M |'")
                if functions > int(told[1]) + ROOM or files > int(told[2]) + 1:
                    grown = True
                    print(f"    more than {options.check} says: {told[1]} functions in {told[2]} files")
    stale = stale_blocks(options.check, options.include) if options.check else []
    for block in stale:
        print(f"{options.check} quotes code that is in none of its headers:\n{block}")
    return 1 if grown or stale else 0


if __name__ == "__main__":
    sys.exit(main())
