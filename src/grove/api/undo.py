"""Undo of an update: which earlier template a set goes back to, and the change that does it."""

from __future__ import annotations

from collections.abc import Sequence

from grove.api import labels
from grove.api.core import ControllerRevision
from grove.api.hashes import generation_hashes
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet

PREVIOUS = "previous"
"""Value of the annotation `grove.io/rollout-undo` that asks for the revision before the present one."""


class CannotUndo(Exception):
    """There is no such template, or it would not last. The message says why."""


def undo_target(pcs: PodCliqueSet, kept: Sequence[ControllerRevision], number: int | None) -> ControllerRevision | None:
    """The revision with this number, or the newest that is not of the present template; None if it is the present one.

    `kept` are the revisions of the set in any order.
    """
    name = pcs.metadata.name
    if elsewhere := kept_for(pcs):
        raise CannotUndo(elsewhere)
    ordered, current = sorted(kept, key=lambda revision: revision.revision), generation_hashes(pcs)
    earlier = [revision for revision in ordered if revision.metadata.labels.get(labels.GENERATION_HASH) not in current]
    if number is None:
        if not earlier:
            raise CannotUndo(f"no earlier template of {name} is kept")
        return earlier[-1]
    revision = numbered(ordered, name, number)
    return revision if revision in earlier else None


def numbered(kept: Sequence[ControllerRevision], name: str, number: int) -> ControllerRevision:
    revision = next((revision for revision in kept if revision.revision == number), None)
    if revision is None:
        there = ", ".join(str(revision.revision) for revision in kept) or "none"
        raise CannotUndo(f"there is no revision {number} of {name}; kept are {there}")
    return revision


def kept_for(pcs: PodCliqueSet) -> str:
    """Why another template would not last: the set has that of an object of another API. Empty if it would last."""
    if not (group := pcs.metadata.labels.get(labels.TRANSLATED_FROM)):
        return ""
    origin = pcs.metadata.annotations.get(labels.TRANSLATED_NAME, pcs.metadata.name)
    return f"{pcs.metadata.name} is kept for {origin} of {group}: change the template there"


def restored(raw: Json, data: Json) -> Json:
    """The merge patch that makes a set's pods from an earlier template; it holds for the version it was made from."""
    earlier = {template["name"]: template for template in data.get("cliques") or ()}
    cliques = []
    for clique in raw["spec"]["template"]["cliques"]:
        before = earlier.get(clique["name"])
        if before is None:
            cliques.append(clique)
            continue
        changed = {key: value for key, value in clique.items() if key not in ("labels", "annotations")}
        changed |= {key: before[key] for key in ("labels", "annotations") if before.get(key)}
        cliques.append({**changed, "spec": {**clique["spec"], "podSpec": before["podSpec"]}})
    template: Json = {"cliques": cliques, "priorityClassName": data.get("priorityClassName") or None}
    return {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "spec": {"template": template}}
