#!/usr/bin/env python3
"""A program with an older standard, or without exceptions, gets one error, whichever header it includes first.

    python3 standard.py INCLUDE COMPILER...

The check is at the head of core/config.hpp. So each header must reach that file before it includes anything else, and the headers that
programs include are compiled. Prints what is wrong, and exits with status 1.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

OLDER = "Unisono needs C++20 (found an older -std); pass -std=c++20 or newer"
WITHOUT = "Unisono reports errors by exceptions: compile the files that include it without -fno-exceptions"
LIBRARY = "Unisono needs std::atomic_ref and std::from_chars for floating-point numbers"
CURSES = "Unisono has a function timeout(), which ncurses has made a macro"
CHECKED = "unisono/core/config.hpp"
OTHERS = ("unisono/core/version.hpp", "unisono/c.h")  # macros, and declarations for C


def first_include(text):
    match = re.search(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.MULTILINE)
    return match.group(1) if match else ""


def said(compiler, flags, include, header, folder, before=""):
    source = Path(folder) / "program.cpp"
    source.write_text(f"{before}#include <{header}>\n")
    return subprocess.run([compiler, *flags, "-fsyntax-only", "-fdiagnostics-color=never", f"-I{include}", source],
                          capture_output=True, text=True).stderr


def main():
    include, compilers = Path(sys.argv[1]), sys.argv[2:]
    headers = [str(path.relative_to(include)) for path in sorted(include.glob("unisono/**/*.hpp"))]
    if len(headers) < 100:
        sys.exit(f"found only {len(headers)} headers below {include}")
    wrong = []
    first = {header: first_include((include / header).read_text()) for header in headers}
    for header in headers:
        reached, path = header, [header]
        while reached in first and reached not in (CHECKED, *OTHERS):
            reached = first[reached]
            path.append(reached)
        if reached not in (CHECKED, *OTHERS):
            wrong.append(f"{' includes first '.join(path)}, before {CHECKED}")
    programs = [header for header in headers if header.count("/") == 1]
    cases = [(["-std=c++17"], OLDER, programs), (["-std=c++17", "-DUNISONO_COMPILED"], OLDER, programs[-1:]),
             (["-std=c++20", "-fno-exceptions"], WITHOUT, programs[-1:]),
             # Stand for libc++ and ncurses, which need not be here.
             (["-std=c++20"], LIBRARY, programs[-1:], "#include <version>\n#undef __cpp_lib_atomic_ref\n"),
             (["-std=c++20"], CURSES, programs[-1:], "#define timeout(delay) wtimeout(stdscr, delay)\n")]
    with tempfile.TemporaryDirectory() as folder:
        for compiler in compilers:
            for flags, text, included, *before in cases:
                for header in included:
                    lines = said(compiler, flags, include, header, folder, *before).splitlines()
                    errors = [line for line in lines if "error: " in line]
                    if len(errors) != 1 or text not in errors[0] or len(lines) > 20:
                        wrong.append(f"{header} with {compiler} {' '.join(flags)}: {len(errors)} errors in {len(lines)} lines, expected one: {text}")
    print("\n".join(wrong))
    print(f"{len(headers)} headers, {len(wrong)} wrong")
    sys.exit(wrong != [])


main()
