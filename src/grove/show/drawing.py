"""Drawings as SVG: a layout of the cluster, and what a terminal shows.

In a layout one square is a node, filled from below in the colours of its gangs, with racks in blocks and blocks in
zones. Text only, no library: a drawing is a list of shapes, and its size follows from their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from rich.text import Text

from grove.show.colours import colours_of
from grove.show.layout import Domain, Layout, Spot, spots_of

CELL, GAP, PAD, LINE, MARGIN = 26, 4, 8, 15, 16
PER_ROW = 16
"""Nodes side by side in a rack before it gets a second row."""
PAGE = 1000
"""Width of the page in a small cluster."""
MOST_NAMED = 24
"""Gangs in the legend."""


def svg_of(layout: Layout) -> str:
    """The whole cluster. Titles of the shapes say what a pointer over them asks."""
    gangs = sorted({owner for spot in spots_of(layout.root) for owner, _ in spot.taken})
    colours = colours_of(layout)
    body: list[str] = []
    width, height = _draw(layout.root, 0, MARGIN, MARGIN, _style(layout.root, colours), body)
    x, y = MARGIN, height + 2 * MARGIN
    for gang in gangs[:MOST_NAMED]:
        if x > MARGIN and x + 18 + 7 * len(gang) > max(width, 600):
            x, y = MARGIN, y + LINE + 4
        body.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colours[gang]}"/>')
        body.append(_text(x + 18, y + 10, gang))
        x += 34 + 7 * len(gang)
    if len(gangs) > MOST_NAMED:
        body.append(
            _text(MARGIN, y + LINE + 14, f"and {len(gangs) - MOST_NAMED} more; a pointer over a node names them")
        )
        y += LINE + 4
    full_w, full_h = max(width, 600) + 2 * MARGIN, y + 2 * LINE
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_w}" height="{full_h}" '
        f'viewBox="0 0 {full_w} {full_h}" font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, f'<rect width="{full_w}" height="{full_h}" fill="#ffffff"/>', *body, "</svg>", ""])


INK = {
    "green": "#2e7d32",
    "yellow": "#b26a00",
    "magenta": "#8e24aa",
    "blue": "#1565c0",
    "red": "#c62828",
    "dim": "#888888",
}
"""What a style's colour becomes on white paper."""
LETTER = 7.8
"""Width of one letter; text is stretched to it, so that columns stand under each other in any fixed-width font."""


def svg_of_text(lines: Sequence[Text]) -> str:
    """Lines of a terminal as a drawing, letter under letter."""
    wide = max((line.cell_len for line in lines), default=0)
    full_w, full_h = round(wide * LETTER) + 2 * MARGIN, len(lines) * (LINE + 2) + 2 * MARGIN
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_w}" height="{full_h}" viewBox="0 0 {full_w} {full_h}" '
        'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13">',
        f'<rect width="{full_w}" height="{full_h}" fill="#ffffff"/>',
    ]
    for row, line in enumerate(lines):
        y = MARGIN + row * (LINE + 2) + 12
        for start, end, style in _runs(line):
            text = line.plain[start:end]
            if text.strip():
                x, long = MARGIN + start * LETTER, (end - start) * LETTER
                ink = next((INK[word] for word in style.split() if word in INK), "#222222")
                bold = ' font-weight="bold"' if "bold" in style else ""
                body.append(
                    f'<text x="{x:.1f}" y="{y}" textLength="{long:.1f}" fill="{ink}"{bold} xml:space="preserve">'
                    f"{escape(text)}</text>"
                )
    return "\n".join([*body, "</svg>", ""])


def _runs(line: Text) -> Iterator[tuple[int, int, str]]:
    """Stretches of one style, without the blanks between words far apart; later spans lie above earlier ones."""
    styles = [str(line.style)] * len(line.plain)
    for span in line.spans:
        styles[span.start : span.end] = [str(span.style)] * (span.end - span.start)
    start = 0
    for i in range(1, len(styles) + 1):
        if i == len(styles) or styles[i] != styles[start] or line.plain[i - 1 : i + 1] == "  ":
            yield start, i, styles[start]
            start = i


class _Style(NamedTuple):
    """How wide the frames of each depth are, how many stand side by side in them, and the colour of each gang."""

    widths: Sequence[int]
    columns: Sequence[int]
    colours: Mapping[str, str]


def _style(root: Domain, colours: Mapping[str, str]) -> _Style:
    """Frames of one level are all as wide as the widest needs; a wider row than the page goes on below."""
    levels: list[list[Domain]] = [[root]]
    while inner := [domain_inside for domain in levels[-1] for domain_inside in domain.domains]:
        levels.append(inner)
    page = max(PAGE, round(75 * math.sqrt(root.nodes)))  # about as wide as high, however large the cluster is
    widths, columns, below = list[int](), list[int](), 0
    for level in reversed(levels):
        most = max(len(domain.domains) for domain in level)
        side_by_side = max(1, min(most, (page + PAD) // (below + PAD))) if most else 0
        content = side_by_side * (below + PAD) - PAD
        nodes = min(PER_ROW, max(len(domain.spots) for domain in level)) * (CELL + GAP) - GAP
        below = max(content, nodes, *(6 * len(_caption(domain)) for domain in level)) + 2 * PAD
        widths.append(below)
        columns.append(side_by_side)
    return _Style(widths[::-1], columns[::-1], colours)


def _caption(domain: Domain) -> str:
    label = f"{domain.level} {domain.name}" if domain.level != domain.name else domain.name
    return f"{label} · {domain.used}/{domain.total}"


def _draw(domain: Domain, depth: int, x: int, y: int, style: _Style, out: list[str]) -> tuple[int, int]:
    """Draws a domain with its corner at x, y; the size it took."""
    at = len(out)
    inner_x, inner_y = x + PAD, y + LINE + PAD
    high = 0
    for start in range(0, len(domain.domains), style.columns[depth] or 1):
        row = domain.domains[start : start + style.columns[depth]]
        tall = 0
        for place, inner in enumerate(row):
            left = inner_x + place * (style.widths[depth + 1] + PAD)
            tall = max(tall, _draw(inner, depth + 1, left, inner_y + high, style, out)[1])
        high += tall + PAD
    for i, spot in enumerate(domain.spots):
        out.extend(
            _spot(spot, inner_x + i % PER_ROW * (CELL + GAP), inner_y + i // PER_ROW * (CELL + GAP), style.colours)
        )
    if domain.spots:
        high = (-(-len(domain.spots) // PER_ROW)) * (CELL + GAP) - GAP + PAD
    width, height = style.widths[depth], high + LINE + PAD
    shade = 250 - 5 * depth
    frame = f'fill="rgb({shade},{shade},{shade})" stroke="#bbbbbb" rx="4"'
    out[at:at] = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" {frame}/>',
        _text(x + PAD, y + LINE, _caption(domain)),
    ]
    return width, height


def _spot(spot: Spot, x: int, y: int, colours: Mapping[str, str]) -> Iterator[str]:
    edge = "#cc3333" if not spot.open else "#888888"
    title = f"{spot.node}: {spot.used}/{spot.total}" + (f", {spot.words}" if spot.words else "")
    title += "".join(f"\n{owner} × {count}" for owner, count in spot.taken)
    yield f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="#ffffff"/>'
    bottom = float(y + CELL)
    for owner, count in spot.taken:
        tall = CELL * count / max(spot.total, spot.used, 1)
        bottom -= tall
        yield f'<rect x="{x}" y="{bottom:.2f}" width="{CELL}" height="{tall:.2f}" fill="{colours[owner]}"/>'
    yield f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="none" stroke="{edge}"/></g>'


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" fill="#333333">{escape(text)}</text>'
