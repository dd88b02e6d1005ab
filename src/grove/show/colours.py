"""Colours of gangs: one hue a set, shades of it for its gangs, the same in a terminal and in a drawing.

As long as there are enough hues, no two sets on one node have the same. In order of name, each set gets the first hue
that none of its neighbours has.
"""

from __future__ import annotations

import colorsys
from collections import defaultdict

from grove.show.layout import Layout, spots_of

HUES = (210, 30, 130, 0, 280, 55, 180, 320, 90, 245, 15, 155)
"""In degrees; neighbours in the list are far apart on the wheel."""
SHADES = ((0.55, 0.62), (0.42, 0.72), (0.66, 0.52), (0.34, 0.60), (0.74, 0.64), (0.50, 0.46))
"""Lightness and saturation; a set's gangs take them in turn."""


def colours_of(layout: Layout) -> dict[str, str]:
    """A colour for each owner, as `#rrggbb`."""
    sets: dict[str, set[str]] = defaultdict(set)
    near: dict[str, set[str]] = defaultdict(set)
    for spot in spots_of(layout.root):
        names = [layout.set_of.get(owner, owner) for owner, _ in spot.taken]
        for owner, _ in spot.taken:
            sets[layout.set_of.get(owner, owner)].add(owner)
        for name in names:
            near[name].update(other for other in names if other != name)
    hue: dict[str, int] = {}
    for number, name in enumerate(sorted(sets)):
        taken = {hue[other] for other in near[name] if other in hue}
        turn = [*range(number % len(HUES), len(HUES)), *range(number % len(HUES))]
        hue[name] = next((place for place in turn if place not in taken), turn[0])
    colours = {}
    for name, owners in sets.items():
        for number, owner in enumerate(sorted(owners)):
            colours[owner] = _hex(HUES[hue[name]], *SHADES[number % len(SHADES)])
    return colours


def _hex(degrees: int, lightness: float, saturation: float) -> str:
    red, green, blue = colorsys.hls_to_rgb(degrees / 360, lightness, saturation)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
