"""Memory, open files and tasks of every process over time, with the faults as thin lines: one SVG, no library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from chaos.processes import Sample

WIDTH, HEIGHT, LEFT, TOP, GAP = 900, 150, 70, 40, 46
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7")
"""Okabe and Ito's, which colour-blind people can distinguish."""
CHARTS = (("memory_mb", "memory, MB"), ("files", "open files"), ("tasks", "tasks"))


def picture(samples: Sequence[Sample], faults: Sequence[tuple[float, str]], title: str) -> str:
    names = sorted({sample.name for sample in samples})
    end_s = max((sample.at_s for sample in samples), default=1.0)
    height = TOP + len(CHARTS) * (HEIGHT + GAP) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for number, name in enumerate(names):
        x = LEFT + number * 130
        parts.append(f'<text x="{x}" y="34" fill="{COLOURS[number % len(COLOURS)]}">{escape(name)}</text>')
    for row, (what, label) in enumerate(CHARTS):
        top = TOP + row * (HEIGHT + GAP) + 16
        highest = max((getattr(sample, what) for sample in samples), default=1.0) * 1.1
        parts.append(f'<text x="{LEFT}" y="{top - 4}">{label}</text>')
        parts.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>')
        for share in (0.0, 0.5, 1.0):
            y = top + HEIGHT * (1 - share)
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{highest * share:.0f}</text>')
        for at_s, fault in faults:
            x = LEFT + WIDTH * at_s / end_s
            line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + HEIGHT}" stroke="#ccc">'
            parts.append(f"{line}<title>{escape(fault)}</title></line>")
        for number, name in enumerate(names):
            for life in sorted({sample.life for sample in samples if sample.name == name}):
                mine = [sample for sample in samples if sample.name == name and sample.life == life]
                values = [(LEFT + WIDTH * sample.at_s / end_s, getattr(sample, what) / highest) for sample in mine]
                points = " ".join(f"{x:.1f},{top + HEIGHT * (1 - y):.1f}" for x, y in values)
                colour = COLOURS[number % len(COLOURS)]
                parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    parts.append(f'<text x="{LEFT + WIDTH}" y="{height - 8}" text-anchor="end">{end_s:.0f} s</text></svg>')
    return "\n".join(parts) + "\n"
