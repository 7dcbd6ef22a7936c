#!/usr/bin/env python3
"""Orders headers so that few translation units show that each compiles alone.

    python3 chains.py INCLUDE_FOLDER --base NAME,NAME,... [--base ...] <HEADERS

Alone, a header sees what it includes, to any depth. It sees the same behind headers that bring nothing else: so a chain, in which each
header includes all that those before it include, is one translation unit in which each compiles as it would alone. So is one behind a
precompiled base, if the chain's first header includes all of the base. Reads headers, one a line, relative to the folder; prints a
chain a line: the number of its base, counted from 1 (the first that fits; 0: none), and its headers, with spaces between.

What a header includes behind its code, its own code does not see. Conditions that ask for the library's mode have the values of a
header-only program, those that ask for the machine or the standard library the values of Linux with libstdc++ on x86-64 or Arm. (Elsewhere
a header may see more than alone: a test is weaker there, and none fails.) An include that depends on another #if counts as something that a
header brings, and not as something that it includes by itself. An include of a sentence ends a compilation, and brings nothing.
"""
import argparse
import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>" ]+)[>"]')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)")
NO_CODE = re.compile(r"\s*(#|//)|UNISONO_NAMESPACE_(BEGIN|END)")
HEADER_ONLY = re.compile(r"UNISONO_DEFINES(_PART\(\w+\))?")  # true in a header-only program


PLATFORM = {"defined(__linux__)": True, "defined(__GLIBCXX__) && __has_include(<bits/chrono.h>)": True,
            "!defined(__SSE2__) && !defined(__aarch64__)": False}


def value_of(condition):
    """True or False if the library's mode or the platform decides it, otherwise None."""
    if HEADER_ONLY.fullmatch(condition):
        return True
    if condition in PLATFORM:
        return PLATFORM[condition]
    if "||" not in condition and re.match(r"defined\(UNISONO_COMPILED\)|!UNISONO_DEFINES( &&|$)", condition):
        return False
    return None


def includes_of(text):
    """(includes that may be seen, those that are seen in any case, those of the latter that stand before all code)"""
    everything, certain, early, open_conditions, code = [], [], [], [], False
    for line in text.splitlines():
        if match := CONDITION.match(line):
            word, condition = match[1], match[2].split("//")[0].strip()
            if word == "endif":
                open_conditions.pop()
            elif word == "else":
                open_conditions[-1] = None if open_conditions[-1] is None else not open_conditions[-1]
            elif word == "elif":
                open_conditions[-1] = None
            else:
                open_conditions.append(value_of(condition) if word == "if" else None)
        elif (match := INCLUDE.match(line)) and False not in open_conditions:
            everything.append(match[1])
            if None not in open_conditions:
                certain.append(match[1])
                if not code:
                    early.append(match[1])
        elif line.strip() and not NO_CODE.match(line):
            code = True
    return everything, certain, early


class Closures:
    """What a header brings into a translation unit, and what it sees for certain before its own code; both hold the header itself."""

    def __init__(self, folder):
        self.folder = folder
        self.includes = {}
        self.known = {}

    def includes_in(self, header):
        if header not in self.includes:
            file = self.folder / header
            self.includes[header] = includes_of(file.read_text()) if file.is_file() else ([], [], [])
        return self.includes[header]

    def of(self, header, which):
        if (header, which) not in self.known:
            found = self.known[header, which] = {header}
            for each in self.includes_in(header)[which]:
                found |= self.of(each, which)
        return self.known[header, which]

    def brought(self, header):
        return self.of(header, 0)

    def included(self, header):
        return {header}.union(*(self.of(each, 1) for each in self.includes_in(header)[2]))


def chains(headers, closures):
    """As few as possible: a maximum matching of each header with the next in its chain."""
    order = sorted(headers, key=lambda header: (len(closures.included(header)), header))
    after = {header: [other for other in order
                      if other != header and header in closures.included(other)
                      and closures.brought(header) <= closures.included(other)] for header in order}
    before = {}

    def match(header, tried):
        for other in after[header]:
            if other not in tried:
                tried.add(other)
                if other not in before or match(before[other], tried):
                    before[other] = header
                    return True
        return False

    sys.setrecursionlimit(100_000)
    for header in reversed(order):
        match(header, set())
    following = {first: second for second, first in before.items()}
    for header in order:
        if header not in before:
            chain = [header]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            yield chain


def base_of(chain, bases, closures):
    for number, base in enumerate(bases, 1):
        if all(closures.brought(each) <= closures.included(chain[0]) for each in base):
            return number
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--base", action="append", default=[])
    options = parser.parse_args()
    closures = Closures(options.folder)
    bases = [base.split(",") for base in options.base]
    for chain in chains(sys.stdin.read().split(), closures):
        print(base_of(chain, bases, closures), *chain)


if __name__ == "__main__":
    main()
