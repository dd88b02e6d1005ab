"""Autoscalers of a set: their metrics, the replicas that they ask for, and why they do not change them.

The lines come from HorizontalPodAutoscalers, which Grove or a user created, and from the objects that they scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from grove.api import conditions as words
from grove.api import labels
from grove.api.core import HorizontalPodAutoscaler
from grove.api.hpa import asks_for_more, current_of, metric_name, target_of
from grove.api.meta import Json, Key, find_condition
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.diagnosis.seen import Seen

GROVE_API = PodCliqueSet.RESOURCE.api_version


@dataclass(frozen=True, slots=True)
class ScalerLine:
    """One autoscaler. `measures` are `name current/target`; `why` is empty for one that has nothing to wait for."""

    namespace: str
    set_name: str
    name: str
    current: int
    desired: int
    least: int
    most: int
    measures: tuple[str, ...]
    why: str


def autoscaler_lines(scalers: Iterable[HorizontalPodAutoscaler], seen: Seen) -> list[ScalerLine]:
    """A line for each autoscaler of a set that was seen, in the order of sets and names."""
    lines = (line for scaler in scalers if (line := _line(scaler, seen)) is not None)
    return sorted(lines, key=lambda line: (line.namespace, line.set_name, line.name))


def _line(scaler: HorizontalPodAutoscaler, seen: Seen) -> ScalerLine | None:
    target = scaler.spec.scale_target_ref
    if target.api_version != GROVE_API:
        return None
    scaled = _find_target(seen, target.kind, Key(scaler.metadata.namespace, target.name))
    if scaled is None:
        return None
    set_name = scaled.metadata.labels.get(labels.PART_OF, scaled.metadata.name)
    if seen.find_set(Key(scaler.metadata.namespace, set_name)) is None:
        return None  # only some sets were asked for
    status = scaler.status
    return ScalerLine(
        scaler.metadata.namespace,
        set_name,
        scaler.metadata.name,
        status.current_replicas,
        status.desired_replicas,
        1 if scaler.spec.min_replicas is None else scaler.spec.min_replicas,
        scaler.spec.max_replicas,
        tuple(_measures(scaler)),
        _why(scaler, scaled, seen),
    )


Scaled = PodClique | PodCliqueScalingGroup | PodCliqueSet


def _find_target(seen: Seen, kind: str, key: Key) -> Scaled | None:
    kinds: dict[str, Iterable[Scaled]] = {
        PodClique.RESOURCE.kind: seen.cliques,
        PodCliqueScalingGroup.RESOURCE.kind: seen.groups,
        PodCliqueSet.RESOURCE.kind: seen.sets,
    }
    return next((target for target in kinds.get(kind, ()) if target.metadata.key == key), None)


def _metrics(scaler: HorizontalPodAutoscaler) -> Iterator[tuple[Json, Json | None]]:
    """Each metric of the spec with its status."""
    seen = list(scaler.status.current_metrics or ())
    for index, wanted in enumerate(scaler.spec.metrics or ()):
        current = next((status for status in seen if metric_name(status) == metric_name(wanted)), None)
        if current is None and len(seen) == len(scaler.spec.metrics or ()):
            current = seen[index]
        yield wanted, current


def _measures(scaler: HorizontalPodAutoscaler) -> Iterator[str]:
    for wanted, current in _metrics(scaler):
        yield f"{metric_name(wanted) or '?'} {current_of(wanted, current) or '?'}/{target_of(wanted) or '?'}"


def _why(scaler: HorizontalPodAutoscaler, scaled: Scaled, seen: Seen) -> str:
    """The first reason why the autoscaler changes nothing. Reasons that a person can remove come first."""
    by_type = {condition.type: condition for condition in scaler.status.conditions or ()}
    active, able, limited = (by_type.get(name) for name in ("ScalingActive", "AbleToScale", "ScalingLimited"))
    if able is not None and able.status == "False":
        return f"cannot scale: {able.message}"
    if active is not None and active.status == "False":
        disabled = active.reason == "ScalingDisabled"
        return "off: its target has 0 replicas" if disabled else f"metric missing: {active.message}"
    if waiting := _waiting_gangs(scaled, seen):
        return f"waits for capacity: {waiting} of its gangs are not placed"
    least, most = 1 if scaler.spec.min_replicas is None else scaler.spec.min_replicas, scaler.spec.max_replicas
    if scaler.status.current_replicas >= most and any(asks_for_more(*metric) for metric in _metrics(scaler)):
        return f"at its most ({most})"  # also while it is stabilised: the load is above its target now
    if able is not None and able.reason == "ScaleDownStabilized" and scaler.status.current_replicas <= least:
        return f"at its least ({least})"  # so the HPA says of idle ones for minutes, though they cannot scale in
    if able is not None and able.reason in ("ScaleDownStabilized", "ScaleUpStabilized"):
        # Before its limits: what it wanted a minute ago may still be above them while the load has long gone.
        way = "in" if able.reason == "ScaleDownStabilized" else "out"
        return f"scale-{way} waits until the load has been so for a while (stabilisation)"
    if limited is not None and limited.status == "True":
        texts = {
            "TooManyReplicas": f"at its most ({most})",
            "TooFewReplicas": f"at its least ({least})",
            "ScaleUpLimit": "scales out no faster than its behavior allows",
            "ScaleDownLimit": "scales in no faster than its behavior allows",
        }
        if limited.reason in texts:
            return texts[limited.reason]
    return ""


def _waiting_gangs(scaled: Scaled, seen: Seen) -> int:
    """Gangs of what is scaled that the scheduler has not placed."""
    meta = scaled.metadata
    if isinstance(scaled, PodCliqueSet):
        mine: Iterable[PodGang] = seen.of_set(seen.gangs, scaled)
    else:
        label = labels.SCALING_GROUP if isinstance(scaled, PodCliqueScalingGroup) else labels.POD_CLIQUE
        pods = [pod for pod in seen.pods if pod.metadata.labels.get(label) == meta.name]
        keys = {Key(meta.namespace, pod.metadata.labels.get(labels.POD_GANG, "")) for pod in pods}
        mine = [gang for key, gang in seen.gang_of.items() if key in keys]
    placed = (find_condition(gang.status.conditions, words.SCHEDULED) for gang in mine)
    return sum(condition is not None and condition.status == words.FALSE for condition in placed)
