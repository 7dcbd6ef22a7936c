#!/usr/bin/env python3
"""Programs before and after.

    check.py runs LAUNCHER BEFORE AFTER   after, on 1, 2, 3 and 4 ranks, prints what before prints on one process
    check.py listings [--write]           README.md shows what was added, at most 20 lines each (cuda_c: 25); --write renews it. The diff in
                                          the repository's README.md has the same changes as loop
"""
import difflib, pathlib, re, subprocess, sys

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here.parent))
import launched

MOST_ADDED = {"cuda_c": 25} # all others: 20


def runs(launcher, before, after):
    def on(ranks, program):
        name = pathlib.Path(launcher).name
        out, err, status = (launched.by_mpirun(name, ranks, [program]) if name.startswith("mpirun") else
                            launched.by_unisono_run(launcher, ranks, [program]))
        assert status == 0, f"{program} on {ranks} ranks: status {status}\n{out}{err}"
        return out

    alone = subprocess.run([before], capture_output=True, text=True, timeout=100, env=launched.environment())
    # Some MPIs do not start without their mpirun.
    expected = alone.stdout if alone.returncode == 0 else on(1, before)
    assert re.fullmatch(r"[^\n]*\d[^\n]*\n", expected), f"before: '{expected}', status {alone.returncode}\n{alone.stderr}"
    for ranks in (1, 2, 3, 4):
        found = on(ranks, after)
        assert found == expected, f"on {ranks} ranks\n{found}instead of\n{expected}"
    print(expected, "the same on 1 to 4 ranks", sep="")


def listing(folder):
    """(difference without file names, how many lines were added)"""
    before, after = (next(folder.glob(f"{when}.*")).read_text().splitlines() for when in ("before", "after"))
    lines = list(difflib.unified_diff(before, after, n=1, lineterm=""))[2:]
    lines = ["@@" if line.startswith("@@") else line.rstrip() for line in lines]
    return "\n".join(lines), sum(line.startswith("+") for line in lines)


def listings(write):
    readme = here / "README.md"
    text = readme.read_text()
    folders = sorted(path.parent for path in here.glob("*/after.*"))
    assert folders, "no program"
    renewed = text
    for folder in folders:
        shown, added = listing(folder)
        most = MOST_ADDED.get(folder.name, 20)
        assert 0 < added <= most, f"{folder.name}: {added} lines were added, at most {most} may be"
        place = re.compile(rf"(<!-- {folder.name} -->\n)[^\0]*?(<!-- end -->)")
        assert len(place.findall(renewed)) == 1, f"README.md has no place for {folder.name}, or several"
        renewed = place.sub(lambda found: f"{found[1]}{added} lines added:\n\n```diff\n{shown}\n```\n{found[2]}", renewed)
        print(f"{folder.name}: {added} lines added")
    if write:
        readme.write_text(renewed)
    changes = lambda diff: [line for line in diff.splitlines() if line[:1] in ("+", "-") and line[1:].strip()]
    front = re.search(r"^```diff\n(.*?)^```", (here.parent.parent / "README.md").read_text(), re.M | re.S)
    assert front, "the repository's README.md has no diff"
    assert changes(front[1]) == changes(listing(here / "loop")[0]), "the diff in the repository's README.md has other changes than loop"
    assert write or renewed == text, "README.md shows another difference than the programs have: run check.py listings --write"


if sys.argv[1] == "runs":
    runs(*sys.argv[2:5])
else:
    listings("--write" in sys.argv)
