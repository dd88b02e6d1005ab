"""Faults of the annotations that ask for headroom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grove.admission.rules.syntax import subdomain_fault
from grove.api.faults import Fault, invalid
from grove.api.fields import natural, text
from grove.api.labels import HEADROOM, HEADROOM_PRIORITY, MOST_HEADROOM


def headroom_faults(path: str, annotations: Mapping[str, Any]) -> Iterator[Fault]:
    wanted, priority = annotations.get(HEADROOM), annotations.get(HEADROOM_PRIORITY)
    if wanted is not None and ((units := natural(text(wanted).strip())) is None or units > MOST_HEADROOM):
        yield invalid(f"{path}.{HEADROOM}", wanted, f"must be a number of further replicas, 0 to {MOST_HEADROOM}")
    if priority is not None and (wrong := subdomain_fault(text(priority))):
        yield invalid(f"{path}.{HEADROOM_PRIORITY}", priority, f"must be the name of a PriorityClass: {wrong}")
    elif priority is not None and wanted is None:
        yield invalid(f"{path}.{HEADROOM_PRIORITY}", priority, f"has no effect without {HEADROOM}")
