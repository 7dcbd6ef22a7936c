"""Draws a comparison as SVG, with the standard library alone: times over sizes, a panel a collective and world."""

import math

from svg import line, text

COLOURS = {"unisono": "#c0392b", "tcp": "#c0392b", "unisono_own_memory": "#e59866", "libfabric": "#e67e22",
           "openmpi": "#1f618d", "openmpi_malloc": "#5dade2", "mpich": "#7d3c98", "openmpi5": "#148f77", "mpich5": "#af7ac5",
           "gloo": "#1e8449", "deepspeed": "#b7950b", "floor": "#7f8c8d", "socket": "#7f8c8d"}
OURS = ("unisono", "tcp", "libfabric")
FLOORS = ("floor", "socket")
WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 420, 260, 60, 90, 70, 70


def in_words(size):
    for unit, name in ((1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size // unit}{name}"
    return str(size)


def time_in_words(us):
    return f"{us:g} us" if us < 1000 else f"{us / 1000:g} ms"


def panel(results, left, top, title):
    sizes = [one["bytes"] for one in results]
    times = [entry["median_us"] for one in results for entry in one["contenders"].values() if entry["median_us"] > 0.01]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    first, last = math.log2(min(sizes)), math.log2(max(sizes))

    def x_of(size):
        return left + WIDTH * ((math.log2(size) - first) / (last - first) if last > first else 0.5)

    def y_of(us):
        return top + HEIGHT * (1 - (math.log10(us) - low) / max(1, high - low))

    parts = [text(left, top - 10, title, "start", 14)]
    for power in range(low, high + 1):
        parts += [line(left, y_of(10**power), left + WIDTH, y_of(10**power)),
                  text(left - 6, y_of(10**power) + 4, time_in_words(10**power), "end", 10)]
    for index, size in enumerate(sizes):
        parts.append(line(x_of(size), top, x_of(size), top + HEIGHT, "#eee"))
        if index % 2 == 0 or len(sizes) < 8:
            parts.append(text(x_of(size), top + HEIGHT + 14, in_words(size), size=10))
    for name, colour in COLOURS.items():
        points = [(x_of(one["bytes"]), y_of(one["contenders"][name]["median_us"])) for one in results
                  if name in one["contenders"] and one["contenders"][name]["median_us"] > 0.01]
        if not points or (name in FLOORS and len(points) == 1):
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = ' stroke-dasharray="4 3"' if name in FLOORS else ""
        width = 2.5 if name in OURS else 1.5
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    return parts


def draw(results, titles, machine):
    collectives = list(dict.fromkeys(one["collective"] for one in results if one["collective"] != "barrier"))
    worlds = sorted({one["ranks"] for one in results})
    width = LEFT + len(worlds) * (WIDTH + GAP_X)
    height = TOP + max(1, len(collectives)) * (HEIGHT + GAP_Y)
    size = f'width="{width}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}">',
             f'<rect {size} fill="white"/>',
             text(LEFT, 24, f"Medians, float sum; {machine['processor']}, {machine['cores']} cores", "start", 13)]
    at = LEFT
    for name in [name for name in COLOURS if any(name in one["contenders"] for one in results)]:
        title = titles[name]
        parts += [f'<rect x="{at}" y="38" width="14" height="4" fill="{COLOURS[name]}"/>',
                  text(at + 20, 44, title, "start")]
        at += 40 + 7 * len(title)
    for row, collective in enumerate(collectives):
        for column, ranks in enumerate(worlds):
            mine = [one for one in results if one["collective"] == collective and one["ranks"] == ranks]
            if mine:
                parts += panel(mine, LEFT + column * (WIDTH + GAP_X), TOP + row * (HEIGHT + GAP_Y),
                               f"{collective}, {ranks} processes")
    return "\n".join(parts + ["</svg>\n"])
