#!/usr/bin/env python3
"""Draws the pictures of README.md, docs/elastic.md, docs/how_to and docs/internals: pictures.py [--check]

    docs/pictures/pipe.svg     one training step as a pipe
    docs/pictures/peers.svg    all_reduce beside other libraries
    docs/pictures/step.svg     a training step on two processes beside one
    docs/pictures/hosting.svg  who hosts which replica of an elastic world
    docs/pictures/change.svg   the phases of a change of an elastic world
    docs/pictures/cut.svg      which ranks continue when others are only silent
    docs/pictures/elders.svg   the members without which added members cannot decide

The figures of the charts are read from bench/results and the tables of bench/RESULTS.md, and those of hosting.svg from the output in docs/how_to/elastic_job.md: no other place has them. The colours follow the reader's theme. --check
writes nothing, and fails if a picture is not what the script draws.
"""
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import results

# Colours by name: on white paper, and on dark.
COLOURS = {"ink": ("#1f2328", "#f0f6fc"), "faint": ("#59636e", "#9198a1"), "line": ("#d1d9e0", "#3d444d"), "paper": ("#ffffff", "#0d1117"),
           "box": ("#f6f8fa", "#151b23"), "ours": ("#0969da", "#4493f8"), "theirs": ("#8c959f", "#656c76"),
           # per rank
           "rank0": ("#b6d6ff", "#1f4b80"), "rank1": ("#c9ecc4", "#22582c"), "rank2": ("#f4d9a8", "#6b4a12"), "rank3": ("#e3d0f7", "#513377"),
           "rank4": ("#f9cdd5", "#7a2b3b"), "rank5": ("#c5e8ec", "#1d545c")}
RULES = """text { font-family: system-ui, sans-serif; font-size: 14px; fill: ink; }
.title { font-size: 16px; font-weight: 600; }
.faint { fill: faint; font-size: 12px; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.paper { fill: paper; }
.box { fill: box; stroke: line; stroke-width: 1.5; }
.line { stroke: line; stroke-width: 1; }
.one { stroke: faint; stroke-width: 1; stroke-dasharray: 4 3; }
.arrow { stroke: faint; stroke-width: 1.5; fill: none; marker-end: url(#head); }
.head { fill: faint; }
.ours { fill: ours; }
.theirs { fill: theirs; }
.rank0 { fill: rank0; stroke: paper; }
.rank1 { fill: rank1; stroke: paper; }
.rank2 { fill: rank2; stroke: paper; }
.rank3 { fill: rank3; stroke: paper; }
.rank4 { fill: rank4; stroke: paper; }
.rank5 { fill: rank5; stroke: paper; }
.range { stroke: ink; stroke-width: 1.5; }
.group { fill: none; stroke: faint; stroke-width: 1.5; }
.lost { fill: box; stroke: faint; stroke-width: 1.5; stroke-dasharray: 4 3; }
"""


def style():
    """Plain colours, and those of dark paper behind them: programs without CSS variables draw the former."""
    colour = re.compile(r"\b(fill|stroke): (\w+);")
    named = lambda theme: lambda match: f"{match[1]}: {COLOURS[match[2]][theme]};" if match[2] in COLOURS else match[0]
    dark = []
    for rule in RULES.splitlines():
        found = [match[0] for match in colour.finditer(rule) if match[2] in COLOURS]
        if found:
            dark.append(f"  {rule.split(' {')[0]} {{ {colour.sub(named(1), ' '.join(found))} }}\n")
    return f"<style>\n{colour.sub(named(0), RULES)}@media (prefers-color-scheme: dark) {{\n{''.join(dark)}}}\n</style>\n"




class Picture:
    def __init__(self, width, height, what):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n',
                      f"<title>{what}</title>\n", style(),
                      '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
                      '<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>\n',
                      f'<rect class="paper" width="{width}" height="{height}"/>\n']

    def text(self, x, y, words, kind=""):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:g}" y="{y:g}"' + (f' class="{kind}"' if kind else "") + f">{words}</text>\n")

    def rect(self, x, y, width, height, kind, radius=0):
        self.parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}"/>\n')

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>\n')

    def path(self, d, kind):
        self.parts.append(f'<path class="{kind}" d="{d}"/>\n')

    def done(self):
        return "".join(self.parts) + "</svg>\n"


def table(section, heading):
    """Rows of the first table behind a heading of bench/RESULTS.md, by their first cell; of equal ones the first."""
    text = (ROOT / "bench/RESULTS.md").read_text()
    behind = re.split(rf"^## {re.escape(section)}$", text, flags=re.M)[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in behind.splitlines() if line.startswith("|")]
    assert rows and heading in rows[0], f"bench/RESULTS.md: no table '{section}' with a column '{heading}'"
    return {row[0]: dict(zip(rows[0], row)) for row in reversed(rows[2:])}


def number(cell):
    return float(re.match(r"[\d.]+", cell)[0])


def pipe():
    stages = [("data, sampler", "which samples this", "rank's replicas get"),
              ("model", "loss and gradient of", "each micro-batch"),
              ("accumulation", "one weighted sum", "per rank"),
              ("reducer", "buckets become sums", "over all ranks"),
              ("guard, clipping", "all ranks decide", "whether to commit"),
              ("optimizer", "each rank updates the", "slices that it owns")]
    width, height, box, gap = 860, 250, 230, 55
    picture = Picture(width, height, "One training step: data and sampler, model, accumulation, reducer, guard and clipping, optimizer")
    picture.text(30, 28, "One training step, the same on every rank", "title")
    place = lambda n: (30 + n % 3 * (box + gap), 50 + n // 3 * 104)
    for n, (name, *what) in enumerate(stages):
        x, y = place(n)
        picture.rect(x, y, box, 74, "box", 8)
        picture.text(x + box / 2, y + 25, name, "middle")
        for k, words in enumerate(what):
            picture.text(x + box / 2, y + 44 + 16 * k, words, "faint middle")
        if n % 3 != 2:
            picture.path(f"M{x + box + 4} {y + 37}H{x + box + gap - 6}", "arrow")
    x, y = place(2)
    first, below = place(3)
    picture.path(f"M{x + box / 2} {y + 78}V{y + 89}H{first + box / 2}V{below - 5}", "arrow")
    last = place(5)
    picture.text(last[0] + box, height - 6, "the new parameters go to all ranks: the next step begins", "faint end")
    return picture.done()


def bars(picture, left, top, width, most, rows, marks, unit, one):
    """Horizontal bars of (label, note, value, least, greatest, kind)."""
    scale = width / most
    bottom = top + 40 * len(rows)
    for mark in marks:
        picture.line(left + mark * scale, top - 4, left + mark * scale, bottom, "one" if mark == one else "line")
        picture.text(left + mark * scale, bottom + 16, f"{mark:g}{unit}", "faint middle")
    for n, (label, note, value, least, greatest, kind) in enumerate(rows):
        y = top + 40 * n
        picture.text(left - 12, y + 14, label, "end")
        if note:
            picture.text(left - 12, y + 29, note, "faint end")
        picture.rect(left, y + 2, value * scale, 24, kind, 2)
        if greatest is None:
            picture.text(left + value * scale + 8, y + 19, f"{value:g}{unit}")
        else:
            picture.text(left + greatest * scale + 8, y + 19, f"{value:g}{unit}")
            picture.line(left + least * scale, y + 14, left + greatest * scale, y + 14, "range")
            for edge in (least, greatest):
                picture.line(left + edge * scale, y + 9, left + edge * scale, y + 19, "range")
    return bottom


def peers():
    """Each size of each run of bench/results beside the fastest other library, as dots over logarithmic axes."""
    runs = results.read(ROOT / "bench/results")[1]
    dots = [(results.size_of(results.SIZE.fullmatch(size)), ratio, "theirs" if regime == "far" else "ours")
            for collective, world, size, ratio, regime in results.by_size(runs) if (collective, world) == ("all_reduce", "2 processes")]
    left, top, width, high = 60, 52, 770, 230
    sizes, least, most = [8 * 4**k for k in range(13)] + [256 << 20], 0.5, 16
    across = lambda size: left + 24 + (width - 48) * math.log2(size / sizes[0]) / math.log2(sizes[-1] / sizes[0])
    up = lambda ratio: top + high * (1 - math.log2(min(max(ratio, least), most) / least) / math.log2(most / least))
    picture = Picture(860, top + high + 90, "all_reduce of two processes: times as fast as the fastest of other libraries, by message size")
    picture.text(30, 28, "all_reduce of 2 processes: times as fast as the fastest other library", "title")
    for mark in (0.5, 1, 2, 4, 8, 16):
        picture.line(left, up(mark), left + width, up(mark), "one" if mark == 1 else "line")
        picture.text(left - 8, up(mark) + 4, f"{mark:g}x", "faint end")
    for size in sizes[:-1]:
        picture.text(across(size), top + high + 18, results.bytes_in_words(size).replace(" ", "").replace("iB", "").replace("B", ""), "faint middle")
    for size, ratio, kind in sorted(dots):
        picture.rect(across(size) - 4 + (3 if kind == "theirs" else -3), up(ratio) - 4, 8, 8, kind, 4)
    bottom = top + high + 40
    picture.rect(left, bottom - 5, 8, 8, "ours", 4)
    picture.text(left + 14, bottom + 3, "cores near (a line goes there and back in 50 to 130 ns)", "faint")
    picture.rect(left + 400, bottom - 5, 8, 8, "theirs", 4)
    picture.text(left + 414, bottom + 3, "cores far (470 to 560 ns)", "faint")
    picture.text(left, bottom + 22, "Message size in bytes. A dot is one run at one size; below the dashed line another library is faster.", "faint")
    picture.text(left, bottom + 38, "Others: Open MPI, MPICH, Gloo and DeepSpeed, each version and setting at its best.", "faint")
    return picture.done()


def step():
    all_rows = table("A training step", "value")
    rows = []
    for name, label in (("9 thousand", "9 thousand parameters"), ("300 thousand", "300 thousand"), ("4.3 million", "4.3 million")):
        low, *high = [float(n) for n in re.findall(r"[\d.]+", all_rows[f"{name} parameters, fast kernels"]["value"])]
        rows.append((label, "Unisono", high[0] if high else low, None, None, "ours"))
        rows.append(("", "PyTorch DDP with Gloo", number(all_rows[f"{name} parameters, PyTorch DDP with Gloo"]["value"]), None, None, "theirs"))
    picture = Picture(860, 350, "A training step on two processes, beside the step of one process with the same batch per process")
    picture.text(30, 28, "Weak scaling: the time of a training step on 2 processes, relative to 1 process", "title")
    bottom = bars(picture, 250, 56, 520, 2.5, rows, (0, 0.5, 1, 1.5, 2, 2.5), "x", 1)
    picture.text(30, bottom + 38, "Each process has 32 images. 1x is ideal. Two cores, fast kernels; of a measured range, the larger figure. PyTorch 1.13, in turns.", "faint")
    return picture.done()


def hosting():
    """Replica r of n is hosted by rank r * size / n, rounded down, of those that are there: see Replicas."""
    replicas, updates, left, top, high, scale = 6, 96, 110, 70, 30, 7.4
    text = (ROOT / "docs/how_to/elastic_job.md").read_text()
    run = re.search(r"--elastic 2:4 examples/elastic.*?```", text, re.S)[0]
    members, begin, spans = [0, 1, 2, 3], 0, []
    for update, what, ranks in [*re.findall(r"after update (\d+): (lost|added) ranks? ([\d, ]+);", run), (updates, "end", "")]:
        spans.append((begin, int(update), list(members)))
        changed = [int(rank) for rank in re.findall(r"\d+", ranks)]
        members = [rank for rank in members if rank not in changed] if what == "lost" else members + changed
        begin = int(update)
    picture = Picture(860, top + replicas * high + 62, "Which rank hosts which replica over the updates of a training in which ranks die and others come")
    picture.text(30, 28, "Who hosts which replica: ranks 2 and 0 are killed, ranks 4 and 5 take their places", "title")
    for replica in range(replicas):
        y = top + replica * high
        picture.text(left - 12, y + 20, f"replica {replica}", "end")
        host_of = lambda ranks: ranks[max(r for r in range(len(ranks)) if r * replicas // len(ranks) <= replica)]
        k = 0
        while k < len(spans):
            last = k
            while last + 1 < len(spans) and host_of(spans[last + 1][2]) == host_of(spans[k][2]):
                last += 1
            start, end = spans[k][0], spans[last][1]
            picture.rect(left + start * scale, y, (end - start) * scale, high, f"rank{host_of(spans[k][2])}")
            if end - start >= 8:
                picture.text(left + start * scale + 10, y + 20, f"rank {host_of(spans[k][2])}")
            k = last + 1
    bottom = top + replicas * high
    for start, _, ranks in spans[1:]:
        picture.line(left + start * scale, top - 6, left + start * scale, bottom + 4, "one")
    for mark in range(0, updates + 1, 20):
        picture.line(left + mark * scale, bottom, left + mark * scale, bottom + 5, "line")
        picture.text(left + mark * scale, bottom + 19, str(mark), "faint middle")
    picture.text(left + updates * scale, bottom + 19, "updates", "faint end")
    picture.text(left, top - 12, "Dashed: the world changes. Six replicas, a global batch of 30 images throughout.", "faint")
    picture.text(left, bottom + 44, "The sums do not depend on who hosts a replica, so the run ends with the bits of one rank that nothing disturbed.", "faint")
    return picture.done()


def change():
    left, top, high, scale = 90, 54, 40, 1.0
    picture = Picture(860, top + 4 * high + 56, "A change of an elastic world in time: rank 2 is killed, the others end the world, agree, form the next one, start, and repeat the update")
    picture.text(30, 28, "Rank 2 is killed during update 21", "title")
    phases = [("update 20", 130, "rank0"), ("update 21", 90, "lost"), ("ending", 70, "rank4"), ("agreeing", 90, "rank2"), ("forming", 90, "rank3"),
              ("starting", 80, "rank5"), ("update 21 again", 190, "rank0")]
    for rank in range(4):
        x, y = left, top + rank * high
        picture.text(left - 12, y + 23, f"rank {rank}", "end")
        for name, width, kind in phases:
            if rank == 2 and x > left + 130:
                picture.text(x - 18, y + 23, "killed")
                break
            killed = rank == 2 and kind == "lost"
            picture.rect(x, y + 3, width - 25 if killed else width, high - 8, kind)
            if not killed:
                picture.text(x + width / 2, y + 23, name, "middle")
            x += width
    bottom = top + 4 * high
    picture.text(left, bottom + 20, "Dashed: no rank has committed this update, so all drop it. Widths are not to scale.", "faint")
    picture.text(left, bottom + 38, "When the next world starts, the others host the replicas of rank 2.", "faint")
    return picture.done()


def cut():
    """Panels of (ranks on one side, on the other, what each side does); a lost rank is dashed."""
    panels = [([0, 1, 2], [3, 4], [], "A majority continues", ("3 of 5:", "continue"), ("wait for give_up,", "then an error")),
              ([0, 1], [2, 3], [], "The half with the lowest rank", ("with rank 0:", "continue"), ("wait for give_up,", "then an error")),
              ([0], [1], [0], "Two hosts, rank 0 is lost", ("lost, or only", "cut off?"), ("waits for give_up,", "then an error"))]
    picture = Picture(860, 190, "Which ranks continue when the others are only silent")
    for n, (one, other, lost, title, first, second) in enumerate(panels):
        x = 20 + n * 280
        picture.text(x, 28, title, "title")
        for ranks, at, words in ((one, x, first), (other, x + 142, second)):
            picture.rect(at, 44, 118, 76, "box", 8)
            for k, rank in enumerate(ranks):
                middle = at + 59 + 36 * (k - (len(ranks) - 1) / 2)
                picture.rect(middle - 15, 67, 30, 30, "lost" if rank in lost else f"rank{rank}", 15)
                picture.text(middle, 87, str(rank), "middle")
            for k, line in enumerate(words):
                picture.text(at + 59, 140 + 18 * k, line, "middle")
        picture.line(x + 130, 40, x + 130, 124, "one")
    picture.text(20, 182, "Boxes are hosts or groups of hosts; the dashed line is where messages stop.", "faint")
    return picture.done()


def elders():
    picture = Picture(860, 210, "The members that a doubtful member knows, the members of the new membership, and the elders, which are in both")
    picture.text(30, 28, "A quorum of the new membership needs one of the elders", "title")
    picture.rect(170, 62, 330, 90, "group", 45)
    picture.rect(300, 72, 330, 70, "group", 35)
    picture.text(180, 56, "known to member 2", "faint")
    picture.text(620, 56, "the new membership", "faint end")
    for x, member, kind in ((235, 2, "lost"), (360, 0, "rank0"), (440, 1, "rank1"), (565, 3, "rank3")):
        picture.rect(x - 17, 90, 34, 34, kind, 17)
        picture.text(x, 112, str(member), "middle")
    picture.text(235, 174, "doubtful: left behind,", "faint middle")
    picture.text(235, 190, "not known to be dead", "faint middle")
    picture.text(400, 174, "elders", "faint middle")
    picture.text(565, 174, "added", "faint middle")
    return picture.done()


def main():
    check = "--check" in sys.argv[1:]
    wrong = 0
    for draw in (pipe, peers, step, hosting, change, cut, elders):
        path = ROOT / "docs/pictures" / f"{draw.__name__}.svg"
        drawn = draw()
        if not check:
            path.write_text(drawn)
        elif not path.is_file() or path.read_text() != drawn:
            print(f"{path.relative_to(ROOT)} is not what tools/pictures.py draws; run it")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
