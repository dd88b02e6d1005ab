"""Calling loans back: which units of other queues a gang may take its queue's share from, and in which order.

In rounds of growing harm: pods above minima first, then scaled gangs, base gangs last, so that a serving system gets
smaller before it goes away. Nothing is taken from a queue beyond what it has above its share and its guarantee, but for
the one gang that straddles it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from grove.api.koordinator import DISABLE_PREEMPTIBLE, QUOTA_PREEMPTIBLE
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.queue_tree import NO_LIMIT, Amounts, QueueTree, QueueUsage, QuotaQueue

if TYPE_CHECKING:
    from grove.scheduler.evict.running import Running

KAI_PREEMPTIBILITY, NON_PREEMPTIBLE = "kai.scheduler/preemptibility", "non-preemptible"

Order = tuple[object, ...]


def is_fixed(labels: Mapping[str, str]) -> bool:
    """Whether a pod must not be put out for somebody else's sake."""
    return labels.get(DISABLE_PREEMPTIBLE) == "true" or needs_guarantee(labels)


def needs_guarantee(labels: Mapping[str, str]) -> bool:
    """Whether a pod may use only what is guaranteed to its queue, because it could not be called back."""
    return labels.get(QUOTA_PREEMPTIBLE) == "false" or labels.get(KAI_PREEMPTIBILITY) == NON_PREEMPTIBLE


class Reclaim:
    """What a queue may call back for a gang that wants so much: asked on the use and the shares of one moment."""

    def __init__(
        self, tree: QueueTree, shares: Mapping[str, Amounts], usage: QueueUsage, ours: str, wants: Amounts
    ) -> None:
        self.tree, self._shares, self.usage, self._wants = tree, shares, usage, wants
        self._mine = tree.paths[ours]
        self.lenders = self._lenders(ours)
        """Leaves above their share that the queue may call back from, with how far above they are, in millionths."""

    def _lenders(self, ours: str) -> dict[str, int]:
        tree, mine = self.tree, self._mine
        entitled: list[str] = []
        for name in mine:
            used = self.usage.below(name)
            asked = [r for r in tree.queues[name].resources if self._wants.get(r)]
            if any(used.get(r, 0) + self._wants[r] > self._shares[name].get(r, 0) for r in asked):
                break
            entitled.append(name)
        found: dict[str, int] = {}
        for leaf in tree.queues if entitled else ():
            if leaf == ours or not tree.is_leaf(leaf) or tree.fault(leaf) is not None:
                continue
            apart = self.apart(leaf)
            level = next((name for name in mine if tree.queues[name].parent == tree.queues[apart[-1]].parent), "")
            if level not in entitled or tree.queues[leaf].tree != tree.queues[ours].tree:
                continue
            if all(self.is_above(tree.queues[name], self.usage.below(name), self._wants) for name in apart):
                found[leaf] = self.usage.fullness(tree.queues[leaf], self._shares[leaf])
        return found

    def apart(self, leaf: str) -> list[str]:
        """The queues above a leaf, itself included, that are not above ours."""
        return [name for name in self.tree.paths.get(leaf, ()) if name not in self._mine]

    def is_above(self, queue: QuotaQueue, used: Amounts, given: Amounts) -> bool:
        """Whether a queue has more than its share, and than what it is guaranteed, of something wanted and given."""
        share = self._shares[queue.name]
        return any(
            used.get(r, 0) > max(share.get(r, 0), min(queue.guaranteed.get(r, 0), NO_LIMIT - 1))
            for r in queue.resources
            if self._wants.get(r) and given.get(r)
        )

    def rounds(
        self, running: Sequence[Running], account: Callable[[PodFacts], str | None], now_s: float
    ) -> list[list[Running]]:
        """Units to go, in rounds; a later one holds the earlier ones."""
        from grove.scheduler.evict.running import Running as Unit
        from grove.scheduler.evict.running import base_of

        if not self.lenders:
            return []
        surplus: list[tuple[Order, Running, PodFacts]] = []
        whole: dict[bool, list[tuple[Order, Running]]] = {False: [], True: []}
        for unit in running:
            pods = [pod for pod in unit.pods if not pod.terminating]
            theirs = account(pods[0]) if pods and unit.preemptible else None
            if theirs is None or theirs not in self.lenders or any(is_fixed(pod.labels) for pod in pods):
                continue
            if self._is_young(theirs, pods, now_s):
                continue
            order = (-self.lenders[theirs], unit.priority, -max(pod.created_s for pod in pods), unit.name)
            surplus += ((order, unit, pod) for pod in _above_minima(unit, pods))
            whole[bool(base_of(unit))].append((order, unit))
        found: list[list[Running]] = []
        for rank in range(3):
            ledger = _ReclaimedAmounts(self, account)
            single = [(unit, pod) for order, unit, pod in sorted(surplus, key=lambda one: one[0]) if ledger.take([pod])]
            taken: list[Running] = []
            for stage in (True, False)[:rank]:
                for _, unit in sorted(whole[stage], key=lambda one: one[0]):
                    gone = {pod.uid for owner, pod in single if owner.name == unit.name}
                    if ledger.take([pod for pod in unit.pods if pod.uid not in gone]):
                        taken.append(unit)
            names = {unit.name for unit in taken}
            alone = [
                Unit(f"pod:{pod.namespace}/{pod.name}", unit.priority, (pod,))
                for unit, pod in single
                if unit.name not in names
            ]
            units = [*alone, *taken]
            if units and (not found or len(units) != len(found[-1]) or {*names} != {u.name for u in found[-1]}):
                found.append(units)
        return found

    def _is_young(self, queue: str, pods: Iterable[PodFacts], now_s: float) -> bool:
        least = max(one.min_runtime_s for one in self.tree.path(queue))
        return least > 0 and now_s - min(pod.created_s for pod in pods) < least


class _ReclaimedAmounts:
    """What would be left in the queues if the units taken so far went: takes no more than what is above shares."""

    def __init__(self, reclaim: Reclaim, account: Callable[[PodFacts], str | None]) -> None:
        self._reclaim, self._account = reclaim, account
        self._used: dict[str, dict[str, int]] = {}

    def take(self, pods: Sequence[PodFacts]) -> bool:
        if not pods:
            return False
        reclaim = self._reclaim
        gives = reclaim.usage.counted(pods)
        apart = reclaim.apart(self._account(pods[0]) or "")
        if not all(reclaim.is_above(reclaim.tree.queues[name], self._left(name), gives) for name in apart):
            return False
        for name in apart:
            used = self._left(name)
            for resource, amount in gives.items():
                used[resource] = used.get(resource, 0) - amount
        return bool(apart)

    def _left(self, name: str) -> dict[str, int]:
        if name not in self._used:
            self._used[name] = dict(self._reclaim.usage.below(name))
        return self._used[name]


def _above_minima(unit: Running, pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Pods that a unit can do without, the elder ones kept."""
    left = dict(unit.minimums)
    found = []
    for pod in sorted(pods, key=lambda pod: (pod.created_s, pod.name)) if left else ():
        left[pod.group] = left.get(pod.group, 1) - 1
        if left[pod.group] < 0:
            found.append(pod)
    return found
