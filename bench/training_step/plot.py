"""Draws the comparison as SVG: of each network, how long a step takes next to one rank's."""

from svg import line, text

COLOURS = {"floor": "#7f8c8d", "lockstep": "#b2babb", "together": "#c0392b", "sharded": "#d68910", "blocked together": "#e59894",
           "blocked sharded": "#f5cba7", "torch together": "#1f618d"}
LEFT, TOP, BAR, GROUP, HEIGHT = 60, 70, 34, 60, 300


def bars_of(result):
    """(what it is, ratio) of one network's bars."""
    for name, ways in result["contenders"].items():
        for way, one in ways.items():
            if way == "one" or (name != "unisono" and way in ("floor", "lockstep")):
                continue
            yield (way if name == "unisono" else name + " " + way), one["ratio"]


def draw(results, titles, ways, machine):
    groups = [(result, list(bars_of(result))) for result in results]
    highest = max(bar[1] for _, bars in groups for bar in bars)
    top = max(1.2, min(highest, 6))
    width = LEFT + sum(len(bars) * BAR + GROUP for _, bars in groups) + 40
    height = TOP + HEIGHT + 60
    size = f'width="{max(width, 1000)}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {max(width, 1000)} {height}">',
             f'<rect {size} fill="white"/>',
             text(LEFT, 22, f"A step of two ranks, as a multiple of one rank's; {machine['processor']}, "
                            f"{machine['cores']} cores", "start", 13)]
    at = LEFT
    for colour in dict.fromkeys(bar[0] for _, bars in groups for bar in bars):
        name, _, way = colour.rpartition(" ")
        title = ways[way] if name != "torch" else titles[name]
        title += ", blocked kernels" if name == "blocked" else ""
        parts += [f'<rect x="{at}" y="34" width="12" height="10" fill="{COLOURS[colour]}"/>',
                  text(at + 17, 44, title, "start", 11)]
        at += 36 + 6 * len(title)

    def y_of(ratio):
        return TOP + HEIGHT * (1 - min(ratio, top) / top)

    ticks = [0, 0.5, 1] if top < 3 else range(0, int(top) + 1)
    for tick in ticks:
        parts += [line(LEFT, y_of(tick), width - 20, y_of(tick), "#999" if tick == 1 else "#ddd"),
                  text(LEFT - 6, y_of(tick) + 4, f"{tick:g} x", "end", 10)]
    at = LEFT + 20
    for result, bars in groups:
        begin = at
        for colour, ratio in bars:
            parts += [f'<rect x="{at}" y="{y_of(ratio):.1f}" width="{BAR - 6}" '
                      f'height="{TOP + HEIGHT - y_of(ratio):.1f}" fill="{COLOURS[colour]}"/>',
                      text(at + BAR / 2 - 3, y_of(ratio) - 4, f"{ratio:.2f}", size=10)]
            at += BAR
        one = result["contenders"]["unisono"]["one"]["median_us"]
        parts += [text((begin + at) / 2, TOP + HEIGHT + 18, f"{result['parameters']:,} parameters", size=11),
                  text((begin + at) / 2, TOP + HEIGHT + 34,
                       f"one rank {one / 1000:.2f} ms; {result['round_trip_ns']:.0f} ns", size=10)]
        at += GROUP
    return "\n".join(parts + ["</svg>\n"])
