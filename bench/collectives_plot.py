"""The plot of bench/collectives: a panel per part, bandwidth over size, log-log, as SVG."""

import math

from collectives_parts import NAMES, PARTS
from collectives_report import size_text

COLUMNS = 2
PANEL_WIDTH, PANEL_HEIGHT = 470, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 34, 44
NAMED_SIZES_APART = 52  # pixels
HEAD = 56
# Told apart by those who see colours differently, too; the ends of lines carry shapes.
COLOURS = {"lockstep": "#0b6e4f", "openmpi": "#d55e00", "mpich": "#0072b2", "gloo": "#a0509a",
           "limit": "#777777"}
STYLE = """
text { font-family: 'DejaVu Sans', Helvetica, Arial, sans-serif; font-size: 11px; fill: #222; }
.title { font-size: 13px; font-weight: bold; }
.axis { stroke: #999; stroke-width: 1; fill: none; }
.grid { stroke: #e4e4e4; stroke-width: 1; }
"""


class Scale:
    """Logarithmic, from values to pixels."""

    def __init__(self, low, high, first, last):
        self.low, self.first = math.log10(low), first
        self.step = (last - first) / (math.log10(high) - self.low)

    def __call__(self, value):
        return self.first + (math.log10(value) - self.low) * self.step


def text(x, y, words, anchor="middle", kind=""):
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{words}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def marker(system, x, y):
    colour = COLOURS[system]
    shapes = {
        "lockstep": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"',
        "openmpi": f'<rect x="{x - 2.7:.1f}" y="{y - 2.7:.1f}" width="5.4" height="5.4"',
        "mpich": f'<path d="M{x:.1f} {y - 3.6:.1f} l3.4 6 h-6.8 z"',
        "gloo": f'<path d="M{x:.1f} {y - 3.6:.1f} l3.6 3.6 l-3.6 3.6 l-3.6 -3.6 z"',
    }
    return f'{shapes[system]} fill="{colour}"/>' if system in shapes else ""


def curve(system, rows, x_of, y_of):
    """The medians as a line, and what lies between p10 and p90 as a band."""
    rows = sorted(rows, key=lambda row: row["bytes"])

    def points(key):
        return [(x_of(row["bytes"]), y_of(row["bytes"] / row[key] / 1000)) for row in rows]

    def path(pairs):
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)

    colour = COLOURS[system]
    dashes = ' stroke-dasharray="5 3"' if system == "limit" else ""
    width = 2.4 if system == "lockstep" else 1.6
    parts = [f'<polygon points="{path(points("p10_us") + points("p90_us")[::-1])}" '
             f'fill="{colour}" fill-opacity="0.15"/>',
             f'<polyline points="{path(points("median_us"))}" fill="none" stroke="{colour}" '
             f'stroke-width="{width}"{dashes}/>']
    return parts + [marker(system, x, y) for x, y in points("median_us")]


def decade_text(power):
    """10 to that power GB/s."""
    for unit, exponent in (("GB/s", 0), ("MB/s", -3), ("kB/s", -6)):
        if power >= exponent:
            break
    return f"{10.0 ** (power - exponent):g} {unit}"


def axes(left, top, right, bottom, sizes, low, high, x_of, y_of):
    parts = []
    named_to = -math.inf
    for size in sizes:
        x = x_of(size)
        parts.append(line(x, top, x, bottom, "grid"))
        if x >= named_to + NAMED_SIZES_APART:
            parts.append(text(x, bottom + 15, size_text(size)))
            named_to = x
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        y = y_of(10.0 ** power)
        parts.append(line(left, y, right, y, "grid"))
        parts.append(text(left - 6, y + 4, decade_text(power), "end"))
    parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
                 f'height="{bottom - top:.1f}" class="axis"/>')
    parts.append(text((left + right) / 2, bottom + 33, "bytes of the tensor"))
    middle = (top + bottom) / 2
    parts.append(f'<g transform="rotate(-90 {left - 64:.1f} {middle:.1f})">'
                 f'{text(left - 64, middle + 4, "bytes / median time")}</g>')
    return parts


def panel(part, rows, x0, y0):
    left, right = x0 + LEFT, x0 + PANEL_WIDTH - RIGHT
    top, bottom = y0 + TOP, y0 + PANEL_HEIGHT - BOTTOM
    sizes = sorted({row["bytes"] for row in rows})
    rates = [row["bytes"] / row[key] / 1000 for row in rows for key in ("p10_us", "p90_us")]
    low = 10.0 ** math.floor(math.log10(min(rates)))
    high = 10.0 ** math.ceil(math.log10(max(rates)))
    x_of = Scale(sizes[0] / 1.5, sizes[-1] * 1.5, left, right)
    y_of = Scale(low, max(high, low * 10), bottom, top)
    parts = [text(left, y0 + 22, part.title, "start", "title")]
    parts += axes(left, top, right, bottom, sizes, low, max(high, low * 10), x_of, y_of)
    for system in reversed(part.systems):  # ours on top
        own = [row for row in rows if row["system"] == system]
        if own:
            parts += curve(system, own, x_of, y_of)
    return parts


def legend(systems):
    parts, x = [], LEFT
    for system in systems:
        dashes = ' stroke-dasharray="5 3"' if system == "limit" else ""
        parts.append(f'<line x1="{x}" y1="22" x2="{x + 26}" y2="22" stroke="{COLOURS[system]}" '
                     f'stroke-width="2"{dashes}/>')
        parts.append(marker(system, x + 13, 22))
        name = "what memory allows" if system == "limit" else NAMES[system]
        parts.append(text(x + 32, 26, name, "start"))
        x += 62 + 7 * len(name)
    parts.append(text(LEFT, 46, "Lines are medians, bands reach from p10 to p90. Higher is better.",
                      "start"))
    return parts


def draw(rows):
    shown = [(part, [row for row in rows if row["part"] == part.name]) for part in PARTS]
    shown = [(part, own) for part, own in shown if own]
    width = COLUMNS * PANEL_WIDTH
    height = HEAD + -(-len(shown) // COLUMNS) * PANEL_HEIGHT
    parts = legend([x for x in COLOURS if any(row["system"] == x for row in rows)])
    for i, (part, own) in enumerate(shown):
        parts += panel(part, own, i % COLUMNS * PANEL_WIDTH, HEAD + i // COLUMNS * PANEL_HEIGHT)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}">\n<style>{STYLE}</style>\n'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
            + "\n".join(x for x in parts if x) + "\n</svg>\n")
