"""People who see few colours can distinguish sets on the fleet."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "src" / "grove" / "console" / "static" / "colours.js"
HUES = [
    tuple(int(part) for part in found)
    for found in re.findall(r"\[(\d+), (\d+), (\d+)\]", FILE.read_text().split("const LIGHT")[0])
]

# How the three kinds of colour blindness see linear light (Machado, Oliveira and Fernandes 2009, full severity).
SEEN = {
    "all colours": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def lab(colour: tuple[int, ...], seen: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """A colour as a person sees it, in CIE L*a*b*, where distances are those of the eye."""
    linear = [(one / 255 / 12.92) if one <= 10 else ((one / 255 + 0.055) / 1.055) ** 2.4 for one in colour]
    r, g, b = (min(1.0, max(0.0, sum(x * y for x, y in zip(row, linear, strict=True)))) for row in seen)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("eyes", SEEN, ids=str)
def test_no_two_hues_look_the_same_to(eyes: str) -> None:
    assert len(HUES) == 8
    far = {
        (a, b): sum((x - y) ** 2 for x, y in zip(lab(a, SEEN[eyes]), lab(b, SEEN[eyes]), strict=True)) ** 0.5
        for a, b in itertools.combinations(HUES, 2)
    }
    closest = min(far, key=lambda pair: far[pair])
    assert far[closest] > 10, f"{closest} are {far[closest]:.1f} apart"
