"""The annotations that ask for headroom, on a set or a scaling group, as a PodGang has them."""

from __future__ import annotations

from collections.abc import Mapping

from grove.api.fields import natural
from grove.api.labels import HEADROOM, HEADROOM_PRIORITY, MOST_HEADROOM
from grove.api.meta import Json


def wanted_headroom(annotations: Mapping[str, str]) -> Json:
    """Units and PriorityClass; nothing if there is to be no headroom, or if admission would refuse the number."""
    units = natural(annotations.get(HEADROOM, "").strip())
    if not units or units > MOST_HEADROOM:
        return {}
    priority = annotations.get(HEADROOM_PRIORITY, "")
    return {"units": units, "priorityClassName": priority} if priority else {"units": units}
