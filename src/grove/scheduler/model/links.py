"""Who talks to whom: the annotation `grove.io/network-affinity`, as `prefill=decode:3,router=prefill`.

Each pair of cliques with its weight, 1 if none is given; it holds both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_PAIR = re.compile(r"(?P<one>[a-z0-9-]+)=(?P<other>[a-z0-9-]+)(?::(?P<weight>\d{1,3}))?")


class InvalidLinks(ValueError):
    """The text is not a list of pairs."""


@lru_cache(maxsize=512)
def links_of(text: str) -> Mapping[tuple[str, str], int]:
    """Weights by pair of clique names, in both directions."""
    found: dict[tuple[str, str], int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        pair = _PAIR.fullmatch(part)
        if pair is None:
            raise InvalidLinks(f"must be like prefill=decode:3, separated by commas, not {part!r}")
        weight = int(pair["weight"] or 1)
        found[pair["one"], pair["other"]] = found[pair["other"], pair["one"]] = weight
    return found
