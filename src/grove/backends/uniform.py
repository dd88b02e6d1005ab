"""What all pods of a gang must share: QoS class, sub-priority, queue. Koordinator's table of what goes with what.

A set states them in its own labels, or equally in those of all its cliques. The operator writes them on every pod, for
every scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grove.api.fields import natural
from grove.api.koordinator import PRIORITY, QOS, QUOTA, QUOTA_PREEMPTIBLE
from grove.api.labels import KAI_QUEUE
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podrequest import pod_request

LABELS = "spec.template.cliques.labels"
UNIFORM = (QOS, PRIORITY, QUOTA)
"""Labels of Koordinator that all pods of a gang must share."""
CARRIED = (*UNIFORM, KAI_QUEUE, QUOTA_PREEMPTIBLE)
"""Labels of a set that its pods carry, unless their cliques say otherwise."""
QOS_CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")
CLASSES = {
    "koord-prod": (9000, 9999),
    "koord-mid": (7000, 7999),
    "koord-batch": (5000, 5999),
    "koord-free": (3000, 3999),
}
"""Koordinator's priority classes with the range of their values and of sub-priorities."""
_REFUSED = {
    "BE": ("", "koord-prod"),
    "LSR": ("", "koord-mid", "koord-batch", "koord-free"),
    "LSE": ("", "koord-mid", "koord-batch", "koord-free"),
}
_BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


def values_of(pcs: PodCliqueSet, label: str) -> list[str]:
    """The values of a label on the cliques, each once. A clique without the label has the value of the set."""
    own = pcs.metadata.labels.get(label, "")
    return sorted({clique.labels.get(label, own) for clique in pcs.spec.template.cliques})


def mixed_labels(pcs: PodCliqueSet, labels: Iterable[str] = UNIFORM) -> Iterator[tuple[str, str]]:
    for label in labels:
        values = values_of(pcs, label)
        if len(values) > 1:
            shown = ", ".join(value or "none" for value in values)
            yield LABELS, f"{label} must be the same in a whole gang, not {shown}"


def qos_faults(pcs: PodCliqueSet) -> Iterator[tuple[str, str]]:
    """Field path and what is wrong, for a set that says a QoS class or sub-priority; nothing for one that does not."""
    said_by = (pcs.metadata.labels, *(clique.labels for clique in pcs.spec.template.cliques))
    if not any(QOS in labels or PRIORITY in labels for labels in said_by):
        return
    yield from mixed_labels(pcs, (QOS, PRIORITY))
    qos, sub = values_of(pcs, QOS), values_of(pcs, PRIORITY)
    if len(qos) == 1 and qos[0] and qos[0] not in QOS_CLASSES:
        yield LABELS, f"{QOS} must be one of {', '.join(QOS_CLASSES)}"
        return
    template = pcs.spec.template
    for at, clique in enumerate(template.cliques):
        path = f"spec.template.cliques[{at}].spec.podSpec"
        priority_class = str(clique.spec.pod_spec.get("priorityClassName") or template.priority_class_name)
        chosen = clique.labels.get(QOS, pcs.metadata.labels.get(QOS, ""))
        if priority_class in _REFUSED.get(chosen, ()):
            yield (
                f"{path}.priorityClassName",
                f"{QOS} {chosen} does not go with {priority_class or 'no priority class'}",
            )
        asked = pod_request(clique.spec.pod_spec)
        if chosen in ("LSE", "LSR") and (not asked.get("cpu") or asked["cpu"] % 1000):
            yield f"{path}.containers", f"{QOS} {chosen} needs whole CPUs"
        if chosen and chosen != "BE" and any(asked.get(name) for name in _BATCH):
            yield f"{path}.containers", f"batch resources need {QOS} BE, not {chosen}"
    if len(sub) == 1 and sub[0]:
        yield from _sub_priority_faults(sub[0], template.priority_class_name)


def _sub_priority_faults(text: str, class_name: str) -> Iterator[tuple[str, str]]:
    if natural(text.removeprefix("-")) is None:
        yield LABELS, f"{PRIORITY} must be a whole number, not {text}"
    elif class_name in CLASSES:
        low, high = CLASSES[class_name]
        if not low <= int(text) <= high:
            yield LABELS, f"{PRIORITY} {text} is not of {class_name}, whose range is {low} to {high}"


def queue_faults(pcs: PodCliqueSet) -> Iterator[tuple[str, str]]:
    """A gang runs in one queue of one dialect."""
    yield from mixed_labels(pcs, (QUOTA, KAI_QUEUE))
    if any(values_of(pcs, QUOTA)) and any(values_of(pcs, KAI_QUEUE)):
        yield "metadata.labels", f"a set is in one queue: name it by {QUOTA} or by {KAI_QUEUE}, not by both"
