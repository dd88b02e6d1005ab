"""One toy behind each seam of the scheduler, written from outside: what `docs/extending-scheduler.md` shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Hashable, Mapping, Sequence

import numpy as np

from grove.api.core import Pod
from grove.scheduler.cluster.node_table import Ints, Mask
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.running import Running
from grove.scheduler.model.facts import PodFacts, Shape
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import Reason
from grove.scheduler.model.seams import NO_NEEDS, Applicant, Needs, NodeFilter, NodeSource, Policy, Refusal, Score

GPU, FIRMWARE, POWER = "nvidia.com/gpu", "example.com/firmware", "example.com/watts"


class NewFirmware(NodeFilter):
    """Pods with GPUs stay away from nodes with old firmware."""

    name = "old firmware"

    def looks_at(self, shape: Shape) -> Hashable | None:
        return True if shape.amount(GPU) else None

    def rows(self, snapshot: Snapshot, shape: Shape) -> Mask:
        column = snapshot.nodes.column(FIRMWARE)
        return column.spread([value != "old" for value in column.values], True, snapshot.nodes.rows)


class Licences(NodeSource):
    """Every node has a few licences of a program, and pods with its label use one each."""

    name, counts = "licences", "example.com/licence"

    def __init__(self, on_each_node: int) -> None:
        self._most = on_each_node
        self._used: dict[str, str] = {}
        self._changed: set[str] = set()
        self.prepared: list[str] = []

    def amounts(self, node: str) -> Mapping[str, int]:
        return {self.counts: self._most - list(self._used.values()).count(node)}

    def needs(self, pod: Pod) -> Needs:
        return Needs(((self.counts, 1),)) if "licensed" in pod.metadata.labels else NO_NEEDS

    def reserve(self, pods: Sequence[PodFacts]) -> Refusal | None:
        for pod in pods:
            if "licensed" in pod.labels and pod.uid not in self._used:
                self._used[pod.uid] = pod.node
                self._changed.add(pod.node)
        return None

    def release(self, uid: str) -> None:
        if uid in self._used:
            self._changed.add(self._used.pop(uid))

    def prepare(self, pod: PodFacts, deadline_s: float) -> Awaitable[str] | None:
        return self._hand_over(pod) if pod.uid in self._used else None

    async def _hand_over(self, pod: PodFacts) -> str:
        await asyncio.sleep(0.1)
        self.prepared.append(pod.name)
        return ""

    def refresh(self) -> Collection[str]:
        changed, self._changed = self._changed, set()
        return changed


class CheapPower(Score):
    """Nodes in racks where electricity is cheap are liked better."""

    name = "cheapPower"

    def rows(self, snapshot: Snapshot, shape: Shape) -> Ints | None:
        column = snapshot.nodes.column(POWER)
        watts = np.array([*(int(value) for value in column.values), 0], dtype=np.int64)
        return -watts[column.ids[: snapshot.nodes.rows]]


class Quota(Policy):
    """A number of GPUs for each team. A team below its share goes first, and evicts others that run on it, at any
    priority.
    """

    name, reclaims = "quota", True

    def __init__(self, gpus: Mapping[str, int]) -> None:
        self._gpus = gpus

    def account(self, pod: PodFacts) -> str | None:
        return pod.labels.get("team")

    def refusal(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        team = pods[0].labels.get("team", "")
        wanted = sum(pod.shape.amount(GPU) for pod in pods)
        used = snapshot.usage.of(team).get(GPU, 0)
        if used + wanted <= self._gpus.get(team, used + wanted):
            return None
        return Reason("QuotaUsed", f"team {team} uses {used} of {self._gpus[team]} GPUs and wants {wanted} more")

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        return (who.labels.get("team", "") not in self._gpus,)

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool | None:
        return True if gang.labels.get("team") in self._gpus and victim.pods[0].labels.get("team") is None else None
