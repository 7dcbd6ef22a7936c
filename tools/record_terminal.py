#!/usr/bin/env python3
"""Runs commands and draws what they print, as an animated SVG: record_terminal.py --output FILE.svg [--title WORDS] COMMAND...

Each command is a line for bash. Its lines appear when they came, with pauses of 0.15 to 1 s, and stay at the end; where a reader has asked
for less motion they are all there at once. Both of a command's streams are shown. Two pictures of the documentation:

    record_terminal.py --title 'examples/run.sh' --output docs/pictures/run.svg 'bash examples/run.sh 2>/dev/null'
    PATH=build/examples:build/examples/examples:$PATH record_terminal.py --title 'A rank is killed' \\
        --output docs/pictures/killed.svg 'unisono-run -n 3 roll_call --die 1'
"""
import argparse
import subprocess
import time
from pathlib import Path

LINE, LEFT, CHARACTER = 20, 16, 7.85
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.15, 1.0
STYLE = """<style>
text { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; fill: #e6edf3; white-space: pre; }
.title { fill: #9198a1; text-anchor: middle; }
.command { fill: #7ee787; }
.status { fill: #9198a1; }
.line { animation: appear 0.01s both; }
@keyframes appear { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion: reduce) { .line { animation: none; } }
</style>
"""


def record(command):
    """(seconds after the one before, words, kind) of each line."""
    yield 0.3, "$ " + command.replace(" 2>/dev/null", ""), "command"
    last = time.monotonic()
    process = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        now = time.monotonic()
        yield now - last, line.rstrip("\n"), "output"
        last = now
    status = process.wait()
    if status != 0:
        yield 0.1, f"(exit status {status})", "status"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--title", default="")
    parser.add_argument("commands", nargs="+")
    options = parser.parse_args()
    lines = [line for command in options.commands for line in record(command)]
    width = int(2 * LEFT + CHARACTER * max(len(words) for _, words, _ in lines))
    height = 44 + LINE * len(lines) + 12
    escape = lambda words: words.replace("&", "&amp;").replace("<", "&lt;")
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" xml:space="preserve" role="img">\n', STYLE,
           f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/><rect width="{width}" height="30" rx="8" fill="#21262d"/>\n']
    svg += [f'<circle cx="{18 + 18 * n}" cy="15" r="5" fill="{colour}"/>' for n, colour in enumerate(("#f85149", "#d29922", "#3fb950"))]
    svg.append(f'<text class="title" x="{width // 2}" y="20">{escape(options.title)}</text>\n')
    at = 0.0
    for n, (pause, words, kind) in enumerate(lines):
        at += min(max(pause, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
        svg.append(f'<text class="line {kind}" x="{LEFT}" y="{52 + LINE * n}" style="animation-delay:{at:.2f}s">{escape(words)}</text>\n')
    options.output.write_text("".join(svg) + "</svg>\n")
    print(options.output)


if __name__ == "__main__":
    main()
