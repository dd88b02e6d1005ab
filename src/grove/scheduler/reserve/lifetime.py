"""How long a reservation lasts."""

from __future__ import annotations

from datetime import datetime, timedelta

from grove.api import duration
from grove.api.koordinator import Reservation

DEFAULT_TTL = timedelta(hours=24)


def expiry_of(one: Reservation) -> datetime | None:
    """When it is over by its own word; None if never. `expires` excludes `ttl`, which counts from its creation."""
    if one.spec.expires is not None:
        return one.spec.expires
    created = one.metadata.creation_timestamp
    try:
        ttl = duration.parse(one.spec.ttl) if one.spec.ttl else DEFAULT_TTL
    except duration.InvalidDuration:
        ttl = DEFAULT_TTL
    return created + ttl if created is not None and ttl > timedelta() else None
