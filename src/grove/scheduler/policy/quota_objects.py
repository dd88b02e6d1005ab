"""Queues as two dialects write them: Koordinator's ElasticQuota and KAI's Queue, read into one model.

Nothing raises: an object that cannot be understood becomes a queue with a fault, which its gangs wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from grove.api import duration, kai
from grove.api.koordinator import (
    DEFAULT_QUOTA,
    QUOTA,
    QUOTA_IS_PARENT,
    QUOTA_LENDS,
    QUOTA_NAMESPACES,
    QUOTA_PARENT,
    QUOTA_TOTAL,
    QUOTA_TREE,
    QUOTA_WEIGHT,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
)
from grove.api.labels import KAI_QUEUE
from grove.api.quantity import CPU, InvalidQuantity, amount
from grove.scheduler.policy.queue_tree import CARDS, NO_LIMIT, Amounts, QueueTree, QuotaQueue

ELASTIC, KAI = ElasticQuota.RESOURCE.kind, kai.Queue.RESOURCE.kind
MEGABYTE = 10**6


class QueueObjects(msgspec.Struct):
    """The queues that were read: their tree, and how a pod's labels and namespace select a queue."""

    tree: QueueTree
    of_namespace: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Quotas that take the pods of a namespace, whatever their labels."""
    default: str = ""
    kinds: frozenset[str] = frozenset()

    def queue_of(self, namespace: str, labels: Mapping[str, str]) -> str:
        """The queue a pod is counted in, by label, namespace or default; empty if it is in none.

        A label that names a queue that is not there is believed all the same: its gangs wait for it.
        """
        if ELASTIC in self.kinds and (named := labels.get(QUOTA)):
            return f"{ELASTIC}/{named}"
        if KAI in self.kinds and (named := labels.get(KAI_QUEUE)):
            return f"{KAI}/{named}"
        return self.of_namespace.get(namespace, self.default)


def read_queues(quotas: Iterable[ElasticQuota], queues: Iterable[kai.Queue]) -> QueueObjects:
    """Both dialects together; the elder of two quotas of one name is taken, as there is no telling which is meant."""
    quota_queues: list[QuotaQueue] = []
    faults: dict[str, str] = {}
    totals: dict[str, Amounts] = {}
    of_namespace: dict[str, str] = {}
    kinds: set[str] = set()
    seen: set[str] = set()
    for quota in sorted(quotas, key=_age):
        kinds.add(ELASTIC)
        meta = quota.metadata
        if meta.name in (ROOT_QUOTA, SYSTEM_QUOTA):
            continue
        name = f"{ELASTIC}/{meta.name}"
        if name in seen:
            faults.setdefault(name, f"there is another ElasticQuota {meta.name}, in namespace {meta.namespace}")
            continue
        seen.add(name)
        read = _Reading(name)
        queue = _elastic(quota, read)
        if total := read.amounts(_json(meta.annotations.get(QUOTA_TOTAL, ""), read), "total-resource"):
            totals[queue.tree] = total
        for namespace in _names(meta.annotations.get(QUOTA_NAMESPACES, ""), read):
            of_namespace.setdefault(namespace, name)
        if read.fault:
            faults[name] = read.fault
        quota_queues.append(queue)
    for kai_queue in sorted(queues, key=_age):
        kinds.add(KAI)
        read = _Reading(f"{KAI}/{kai_queue.metadata.name}")
        quota_queues.append(_kai(kai_queue, read))
        if read.fault:
            faults[read.name] = read.fault
    own = {quota_queue.short: quota_queue.name for quota_queue in quota_queues if quota_queue.kind == ELASTIC}
    # A quota of a namespace's own name wins over one that lists it.
    for quota in quotas:
        if quota.metadata.name == quota.metadata.namespace and quota.metadata.name in own:
            of_namespace[quota.metadata.namespace] = own[quota.metadata.name]
    return QueueObjects(
        QueueTree(quota_queues, faults, totals), of_namespace, own.get(DEFAULT_QUOTA, ""), frozenset(kinds)
    )


class _Reading:
    """Gathers the first thing that is wrong with an object."""

    def __init__(self, name: str) -> None:
        self.name, self.fault = name, ""

    def wrong(self, what: str) -> None:
        self.fault = self.fault or what

    def amounts(self, given: Mapping[str, object], where: str) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for resource, value in given.items():
            try:
                number = amount(resource, value)  # type: ignore[arg-type]
            except (InvalidQuantity, TypeError):
                self.wrong(f"{where}.{resource}: {value!r} is not a quantity")
                continue
            if number < 0:
                self.wrong(f"{where}.{resource}: {value} is negative")
            else:
                amounts[resource] = number
        return amounts


def _elastic(quota: ElasticQuota, read: _Reading) -> QuotaQueue:
    meta = quota.metadata
    parent = meta.labels.get(QUOTA_PARENT, "")
    limit = read.amounts(quota.spec.max, "max")
    weight = read.amounts(_json(meta.annotations.get(QUOTA_WEIGHT, ""), read), "shared-weight")
    return QuotaQueue(
        read.name,
        "" if parent in ("", ROOT_QUOTA) else f"{ELASTIC}/{parent}",
        read.amounts(quota.spec.min, "min"),
        limit,
        {**{name: max(1, most) for name, most in limit.items()}, **weight},
        meta.labels.get(QUOTA_LENDS, "true") != "false",
        f"{ELASTIC}/{meta.labels.get(QUOTA_TREE, '')}",
        is_inner=meta.labels.get(QUOTA_IS_PARENT) == "true",
    )


def _kai(queue: kai.Queue, read: _Reading) -> QuotaQueue:
    spec = queue.spec
    given = spec.resources or kai.QueueResources()
    guaranteed: dict[str, int] = {}
    limit: dict[str, int] = {}
    weight: dict[str, int] = {}
    units: tuple[tuple[str, kai.QueueResource | None, Callable[[float], int]], ...] = (
        (CARDS, given.gpu, lambda number: round(number * 1000)),
        (CPU, given.cpu, lambda number: int(number)),
        ("memory", given.memory, lambda number: int(number * MEGABYTE)),
    )
    for name, queue_resource, unit in units:
        if queue_resource is None:
            continue
        for where, value in (
            ("quota", queue_resource.quota),
            ("limit", queue_resource.limit),
            ("overQuotaWeight", queue_resource.over_quota_weight),
        ):
            if value < 0 and (value != kai.UNLIMITED or where == "overQuotaWeight"):
                read.wrong(f"resources.{name}.{where}: {value:g} is negative")
        guaranteed[name] = NO_LIMIT if queue_resource.quota == kai.UNLIMITED else max(0, unit(queue_resource.quota))
        if queue_resource.limit != kai.UNLIMITED:
            limit[name] = max(0, unit(queue_resource.limit))
        weight[name] = max(0, int(queue_resource.over_quota_weight * 1000))
    runtime_s = 0.0
    if spec.preempt_min_runtime:
        try:
            runtime_s = duration.parse(spec.preempt_min_runtime).total_seconds()
        except duration.InvalidDuration:
            read.wrong(f"preemptMinRuntime: {spec.preempt_min_runtime!r} is not a duration")
    parent = f"{KAI}/{spec.parent_queue}" if spec.parent_queue else ""
    return QuotaQueue(read.name, parent, guaranteed, limit, weight, True, KAI, spec.priority or 0, runtime_s)


def _age(obj: ElasticQuota | kai.Queue) -> tuple[float, str, str]:
    created = obj.metadata.creation_timestamp
    return created.timestamp() if created else 0.0, obj.metadata.namespace, obj.metadata.name


def _json(text: str, read: _Reading) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object]) if text else {}
    except (msgspec.MsgspecError, RecursionError):
        read.wrong(f"{text!r} is not a JSON object of resources")
        return {}


def _names(text: str, read: _Reading) -> list[str]:
    try:
        names = msgspec.json.decode(text, type=list[object]) if text else []
    except (msgspec.MsgspecError, RecursionError):
        read.wrong(f"namespaces: {text!r} is not a JSON list")
        return []
    return [name for name in names if isinstance(name, str)]
