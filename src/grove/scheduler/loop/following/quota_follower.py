"""Queues and quotas as the live scheduler follows them: their policy joins the snapshot with the first of them.

Use and shares are written to the quotas of trees that name this scheduler, where their users read them. The scheduler
does not write to other quotas. What is wrong with a queue is an event on it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector, CollectorRegistry

from grove.api import kai
from grove.api.koordinator import QUOTA_REQUEST, QUOTA_RUNTIME, ElasticQuota
from grove.api.labels import SCHEDULER_NAME
from grove.api.meta import Json
from grove.api.quantity import CARDS, CPU, format_amount
from grove.kube.client import Client
from grove.kube.clock import Clock
from grove.kube.errors import KubeError, NotFound, NotLeader
from grove.kube.events import Recorder
from grove.scheduler.explain.explanation import queue_rows
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.seams import Policy
from grove.scheduler.policy.queue_tree import NO_LIMIT
from grove.scheduler.policy.quota_objects import ELASTIC, KAI, QueueObjects, read_queues
from grove.scheduler.policy.quota_policy import FixedUse, Quota

SETTLE_S = 1.0
"""Use is written once it has been still for so long: a gang's binds are one change."""
INVALID_QUEUE = "InvalidQueue"

log = structlog.get_logger(__name__)


class QuotaFollower:
    def __init__(self, client: Client, view: View, events: Recorder, clock: Clock) -> None:
        self._client, self._view, self._events = client, view, events
        self._now_s: Callable[[], float] = lambda: clock.now().timestamp()
        self.policy: Quota | None = None
        self._quotas: Callable[[], Iterable[ElasticQuota]] = tuple
        self._queues: Callable[[], Iterable[kai.Queue]] = tuple
        self._stale = False
        self._used_news = asyncio.Event()
        self._reported: dict[str, str] = {}

    # Following

    def _follow(self) -> None:
        """Reads queues before every turn, first of all: reservations too are put in the order that queues say."""
        if self.refresh not in self._view.before_turn:
            self._view.before_turn.insert(0, self.refresh)

    def follow_quotas(self) -> None:
        self._follow()
        self._quotas = self._view.cache.add(ElasticQuota).list
        self._view.cache.on_event(ElasticQuota, self._quota_changed)

    def follow_queues(self) -> None:
        self._follow()
        self._queues = self._view.cache.add(kai.Queue).list
        self._view.cache.on_event(kai.Queue, self._queue_changed)

    def _quota_changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> None:
        if old is None or new is None or _said(old) != _said(new):
            self._outdated()

    def _queue_changed(self, old: kai.Queue | None, new: kai.Queue | None) -> None:
        if old is None or new is None or old.spec != new.spec:
            self._outdated()

    def _outdated(self) -> None:
        self._stale = True
        self._view.changes.wide_relief = True
        self._view.changes.wake()

    # Every turn

    def refresh(self) -> None:
        """Reads the queues again if they changed; before every turn."""
        if self._stale:
            self._stale = False
            self._read()
        if self.policy is not None:
            self._used_news.set()

    def _read(self) -> None:
        objects = read_queues(self._quotas(), self._queues())
        self._tell_faults(objects)
        snapshot = self._view.snapshot
        before, known = self.policy, self.policy.objects if self.policy is not None else None
        if not objects.kinds:
            self.policy = None
        elif before is not None and known is not None and _counts_alike(known, objects):
            before.use(objects)
            return
        else:
            self.policy = Quota(objects, self._now_s)
        others = [policy for policy in snapshot.seams.policies if not isinstance(policy, Quota | FixedUse)]
        own: list[Policy] = [self.policy, FixedUse(self.policy)] if self.policy is not None else []
        snapshot.use(snapshot.seams.with_policies([*own, *others]))

    # Writing

    def _tell_faults(self, objects: QueueObjects) -> None:
        faults = dict(objects.tree.faults)
        by_name: dict[str, ElasticQuota | kai.Queue] = {
            f"{KAI}/{queue.metadata.name}": queue for queue in self._queues()
        }
        by_name |= {f"{ELASTIC}/{quota.metadata.name}": quota for quota in self._quotas()}
        for name, why in faults.items():
            if self._reported.get(name) != why and name in by_name:
                self._events.warn(by_name[name], INVALID_QUEUE, f"{why}; its gangs wait until it is corrected")
        self._reported = faults

    async def write_used(self) -> None:
        """Keeps `status.used` and the annotations of our trees true; until cancelled."""
        while True:
            await self._used_news.wait()
            await asyncio.sleep(SETTLE_S)
            self._used_news.clear()
            for quota, patch in self._unwritten():
                try:
                    await self._client.patch(ElasticQuota, quota.metadata.name, patch, quota.metadata.namespace)
                except NotFound:
                    continue
                except NotLeader:
                    return
                except KubeError as error:
                    log.info("use of a quota not written", quota=str(quota.metadata.key), error=str(error))
                    self._used_news.set()

    def _unwritten(self) -> list[tuple[ElasticQuota, Json]]:
        policy = self.policy
        if policy is None:
            return []
        snapshot, unwritten = self._view.snapshot, []
        shares = policy.shares(snapshot)
        quotas = self._quotas()
        me = self._view.scheduler_name
        ours = {
            f"{ELASTIC}/{quota.metadata.name}" for quota in quotas if quota.metadata.labels.get(SCHEDULER_NAME) == me
        }
        for quota in quotas:
            name = f"{ELASTIC}/{quota.metadata.name}"
            if name not in policy.tree.queues or policy.tree.paths[name][-1] not in ours:
                continue  # the quota at the root of its tree does not name this scheduler
            resources = sorted(policy.tree.queues[name].resources)
            used = policy.used(snapshot, name)
            asks = dict(used)
            for leaf in policy.tree.leaves.get(name, ()):
                for resource, amount in policy.waiting.get(leaf, {}).items():
                    asks[resource] = asks.get(resource, 0) + amount
            status = {resource: format_amount(resource, used.get(resource, 0)) for resource in resources}
            notes = {
                QUOTA_RUNTIME: _written({resource: shares.get(name, {}).get(resource, 0) for resource in resources}),
                QUOTA_REQUEST: _written({resource: asks.get(resource, 0) for resource in resources}),
            }
            now = {resource: str(amount) for resource, amount in quota.status.used.items()}
            if now != status or any(quota.metadata.annotations.get(key) != text for key, text in notes.items()):
                unwritten.append((quota, {"metadata": {"annotations": notes}, "status": {"used": status}}))
        return unwritten


class QueueCollector(Collector):
    """What queues have, use, should have, may have and wait for, by queue and resource."""

    def __init__(self, quotas: QuotaFollower, view: View) -> None:
        self._quotas, self._view = quotas, view

    def collect(self) -> Iterable[GaugeMetricFamily]:
        about = {
            "guaranteed": "Guaranteed to a queue.",
            "used": "Used in a queue and below it, by whole gangs.",
            "fair_share": "What a queue should have, given what everybody asks for.",
            "limit": "The most a queue may have.",
            "waiting": "Waiting in a queue and ready to run.",
        }
        by = ["queue", "resource"]
        families = {name: GaugeMetricFamily(f"grove_queue_{name}", text, labels=by) for name, text in about.items()}
        for row in queue_rows(self._quotas.policy, self._view.snapshot):
            for resource in row.resources:
                for name, family in families.items():
                    amount = getattr(row, name).get(resource)
                    if amount is not None and amount < NO_LIMIT:
                        family.add_metric([row.name, resource], amount / 1000 if resource in (CPU, CARDS) else amount)
        yield from families.values()


def watch_queues(quotas: QuotaFollower, view: View, registry: CollectorRegistry = REGISTRY) -> Collector:
    """Adds the figures of queues to a registry; unregister the returned collector when it ends."""
    collector = QueueCollector(quotas, view)
    registry.register(collector)
    return collector


def _said(quota: ElasticQuota) -> tuple[Any, ...]:
    """What of a quota is its owner's, not what we write on it."""
    notes = {k: v for k, v in quota.metadata.annotations.items() if k not in (QUOTA_RUNTIME, QUOTA_REQUEST)}
    return quota.spec, quota.metadata.labels, notes


def _counts_alike(objects: QueueObjects, other: QueueObjects) -> bool:
    """Whether every pod is counted in the same queue as before, so that sums stay true."""
    return (objects.kinds, objects.default, objects.of_namespace) == (other.kinds, other.default, other.of_namespace)


def _written(amounts: Mapping[str, int]) -> str:
    return json.dumps({name: format_amount(name, amount) for name, amount in sorted(amounts.items())})
