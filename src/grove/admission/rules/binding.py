"""ClusterTopologyBinding: every domain, key and scheduler once, and only schedulers that can be told a topology."""

from __future__ import annotations

from collections.abc import Iterator

from grove.admission.rules.lookups import BackendFacts
from grove.api.faults import Fault, duplicate, invalid
from grove.api.fields import mapping, sequence, text
from grove.api.meta import Json


def binding_faults(binding: Json, backends: BackendFacts) -> Iterator[Fault]:
    spec = mapping(binding.get("spec"))
    levels = [mapping(level) for level in sequence(spec.get("levels"))]
    for field in ("domain", "key"):
        seen: dict[str, int] = {}
        for index, level in enumerate(levels):
            value = text(level.get(field))
            if value and value in seen:
                yield duplicate(f"spec.levels[{index}].{field}", value, f"also at levels[{seen[value]}]")
            seen.setdefault(value, index)

    # Upstream blames `schedulerTopologyReferences`, the field's former name, which a user cannot find.
    schedulers: set[str] = set()
    for index, reference in enumerate(sequence(spec.get("schedulerTopologyBindings"))):
        path = f"spec.schedulerTopologyBindings[{index}].schedulerName"
        name = text(mapping(reference).get("schedulerName"))
        if name in schedulers:
            yield duplicate(path, name, "a scheduler may be bound once")
        schedulers.add(name)
        if name not in backends.enabled:
            listed = ", ".join(sorted(backends.enabled))
            yield invalid(path, name, f"scheduler is not enabled in the operator configuration, which has: {listed}")
        elif name not in backends.topology_aware:
            aware = ", ".join(sorted(set(backends.topology_aware) & set(backends.enabled))) or "none"
            yield invalid(
                path, name, f"scheduler has no topology object of its own to bind to; those that have: {aware}"
            )
