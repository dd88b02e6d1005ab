"""Sets that another scheduler places, on a cluster where only ours is played: grove-scheduler stands in for it.

The result shows whether gangs, order and capacity work out under our rules, not how the other scheduler decides. The
command that shows the result says so.
"""

from __future__ import annotations

from typing import Any

from grove.api.fields import mapping, sequence
from grove.api.labels import GROVE_SCHEDULER, SCHEDULER_ANNOTATION
from grove.api.meta import Json


def stood_in(manifest: Json) -> tuple[Json, tuple[str, ...]]:
    """The set without the names of other schedulers, and those names, sorted."""
    others: set[str] = set()
    meta, spec = mapping(manifest.get("metadata")), mapping(manifest.get("spec"))
    marks = dict(mapping(meta.get("annotations")))
    if marks.get(SCHEDULER_ANNOTATION, GROVE_SCHEDULER) != GROVE_SCHEDULER:
        others.add(marks.pop(SCHEDULER_ANNOTATION))
    template = mapping(spec.get("template"))
    cliques = [_without_name(clique, others) for clique in sequence(template.get("cliques"))]
    if not others:
        return manifest, ()
    changed = {**manifest, "spec": {**spec, "template": {**template, "cliques": cliques}}}
    if meta.get("annotations"):
        changed["metadata"] = {**meta, "annotations": marks}
    return changed, tuple(sorted(others))


def other_schedulers_remark(others: tuple[str, ...]) -> str:
    return f"played by {GROVE_SCHEDULER} in place of {', '.join(others)}, which may decide differently"


def _without_name(clique: Any, others: set[str]) -> Any:
    spec = mapping(mapping(clique).get("spec"))
    pod = mapping(spec.get("podSpec"))
    name = pod.get("schedulerName")
    if not isinstance(name, str) or name in ("", GROVE_SCHEDULER):
        return clique
    others.add(name)
    bare = {key: value for key, value in pod.items() if key != "schedulerName"}
    return {**clique, "spec": {**spec, "podSpec": bare}}
