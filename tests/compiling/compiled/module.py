#!/usr/bin/env python3
"""module.py REPOSITORY DEPFILE: src/unisono.cppm includes, before it opens the module, each standard and system header that ours include, and no other."""

import pathlib
import re
import sys

INCLUDE = re.compile(r"^#include <([a-z_./0-9]+)>", re.M)


def main() -> int:
    root, depfile = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    listed = INCLUDE.findall((root / "src/unisono.cppm").read_text())
    own = [path for path in depfile.read_text().replace("\\\n", " ").split() if "/include/unisono/" in path]
    used = {name for path in own for name in INCLUDE.findall(pathlib.Path(path).read_text())}
    print(f"{len(own)} headers of ours include {len(used)} others; listed: {len(listed)}")
    wrong = [f"not in src/unisono.cppm: #include <{name}>" for name in sorted(used - set(listed))]
    wrong += [f"in src/unisono.cppm, and no header includes it: {name}" for name in listed if name not in used]
    print(*wrong, sep="\n")
    return bool(wrong or not own)


if __name__ == "__main__":
    sys.exit(main())
