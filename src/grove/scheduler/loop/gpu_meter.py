"""Counts GPU-seconds by set, queue and state: the metric that `kubectl grove usage` and the dashboard show.

Counted in the process that decides, every fifteen seconds, from the view as it is. Other processes do not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import structlog
from prometheus_client import Counter

from grove.api import labels
from grove.api.pod import Pod
from grove.kube.clock import Clock
from grove.scheduler.cluster.node_table import Ints
from grove.scheduler.loop.metrics import GPU_SECONDS
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.reading import pod_requests
from grove.scheduler.policy.gpu_states import NO_OWNER, WAITING, Owner, PodUse, gpu_states, gpus_of, state_of
from grove.scheduler.policy.hold_ledger import HoldReason
from grove.scheduler.policy.queue_tree import THOUSANDTHS

EVERY_S = 15.0

log = structlog.get_logger(__name__)

Floats = npt.NDArray[np.float64]


class GpuMeter:
    """`run` counts until cancelled."""

    def __init__(self, view: View, clock: Clock, seconds: Counter = GPU_SECONDS) -> None:
        self._view, self._clock, self._seconds = view, clock, seconds
        self._requested: dict[str, float] = {}
        """GPUs by uid of pods: reading the requests of ten thousand pods takes long."""

    async def run(self) -> None:
        last = self._clock.now()
        while True:
            await asyncio.sleep(EVERY_S)
            now = self._clock.now()
            try:
                self.count((now - last).total_seconds())
            except Exception:  # figures are no reason to stop scheduling
                log.exception("GPUs are not counted")
            last = now

    def count(self, seconds: float) -> None:
        """Adds a time in which everything was as it is now."""
        for (owner, state), gpus in self.look().items():
            self._seconds.labels(*owner, state).inc(max(0.0, gpus * seconds))

    def look(self) -> dict[tuple[Owner, str], float]:
        """GPUs by owner and state, now."""
        snapshot, pods = self._view.snapshot, list(self._pods())
        free, total = self._cards(snapshot.free), float(self._cards(snapshot.allocatable).sum())
        on_nodes, held = self._held(free)
        used = sum(pod.gpus for pod in pods if pod.state != WAITING)
        # The snapshot also counts what is left of Reservations.
        reserved = total - float(free.clip(0).sum()) - used - on_nodes
        if reserved > 0:
            held[NO_OWNER] = held.get(NO_OWNER, 0.0) + reserved
        return gpu_states(pods, held, total)

    def _pods(self) -> Iterator[PodUse]:
        known, self._requested = self._requested, {}
        for pod in self._view.pods.list():
            uid = pod.metadata.uid
            gpus = known[uid] if uid in known else gpus_of(pod_requests(pod))
            self._requested[uid] = gpus
            if gpus and not (pod.is_finished or (pod.metadata.is_deleting and not pod.is_bound)):
                yield PodUse(self._owner(pod), state_of(pod), gpus)

    def _owner(self, pod: Pod) -> Owner:
        meta = pod.metadata
        facts = PodFacts(meta.uid, meta.namespace, meta.name, Shape(()), labels=meta.labels)
        by_operator = meta.labels.get(labels.MANAGED_BY) == labels.OPERATOR
        return Owner(meta.namespace, meta.labels.get(labels.PART_OF, "") if by_operator else "", self._queue(facts))

    def _queue(self, facts: PodFacts) -> str:
        seams = self._view.snapshot.seams
        accounts = (policy.account(facts) for policy in seams.policies if policy.reclaims)
        return next((account.partition("/")[2] for account in accounts if account), "")

    def _held(self, free: Floats) -> tuple[float, dict[Owner, float]]:
        """GPUs that the snapshot counts as taken because they are held for units; and all that is held, by owner."""
        held, row_of, on_nodes = dict[Owner, float](), self._view.snapshot.nodes.row_of, 0.0
        for hold in self._view.ledger:
            if hold.reason is HoldReason.BINDING:
                continue  # it counts as waiting until the pods are bound
            taken = sum(gpus_of(pod.shape.requests) for pod in hold.pods)
            whole = sum(max(0.0, float(free[row_of[node]])) for node in hold.nodes if node in row_of)
            owner = self._owner_of_unit(hold.owner)
            held[owner] = held.get(owner, 0.0) + taken + whole
            on_nodes += taken
        return on_nodes, held

    def _owner_of_unit(self, unit: str) -> Owner:
        gang = self._view.units.gangs.get(unit)
        pods = [pod for pod, _ in self._view.members(gang)] if gang is not None else []
        if pods:
            return self._owner(pods[0])
        return Owner(gang.podgang.metadata.namespace) if gang is not None else Owner()

    def _cards(self, amounts: Ints) -> Floats:
        """GPUs by node, in amounts by resource and node."""
        snapshot = self._view.snapshot
        rows = [amounts[at] * THOUSANDTHS[name] for at, name in enumerate(snapshot.resources) if name in THOUSANDTHS]
        return np.maximum.reduce(rows) / 1000 if rows else np.zeros(amounts.shape[1])
