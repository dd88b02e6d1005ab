"""Calling loans back: which units of other queues a gang may take its queue's share from, and in which order.

It proceeds in rounds of growing harm: pods above minima first, then scaled gangs, base gangs last. So a serving system
shrinks before it stops. A queue loses only what it has above its share and its guarantee. The one gang that crosses
this limit is the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from grove.api.koordinator import DISABLE_PREEMPTIBLE, QUOTA_PREEMPTIBLE
from grove.scheduler.evict.running import Running, base_of
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.policy.queue_tree import NO_LIMIT, Amounts, QueueTree, QueueUsage, QuotaQueue

KAI_PREEMPTIBILITY, NON_PREEMPTIBLE = "kai.scheduler/preemptibility", "non-preemptible"

Order = tuple[object, ...]


def is_fixed(labels: Mapping[str, str]) -> bool:
    """True if a pod must not be evicted for another unit."""
    return labels.get(DISABLE_PREEMPTIBLE) == "true" or needs_guarantee(labels)


def needs_guarantee(labels: Mapping[str, str]) -> bool:
    """True if a pod may use only the guarantee of its queue, because it cannot be evicted later."""
    return labels.get(QUOTA_PREEMPTIBLE) == "false" or labels.get(KAI_PREEMPTIBILITY) == NON_PREEMPTIBLE


class Reclaim:
    """The amounts that queues may take back for a gang, given its demand, and the use and shares of one moment.

    A queue lends to the gang if it has more than its share of a resource that one of the gang's queues may take back.
    No other queue of the gang may then need that resource without a right to it. The reason: a search does not say
    which pods use the freed capacity.
    """

    def __init__(
        self, tree: QueueTree, shares: Mapping[str, Amounts], usage: QueueUsage, demand: Mapping[str, Amounts]
    ) -> None:
        self.tree, self._shares, self.usage = tree, shares, usage
        self._demand: dict[str, int] = {}
        for amounts in demand.values():
            for resource, amount in amounts.items():
                self._demand[resource] = self._demand.get(resource, 0) + amount
        self._mine = frozenset.intersection(*(frozenset(tree.paths[ours]) for ours in demand))
        """Queues above all of ours."""
        right = {ours: self._lenders(ours, demand) for ours in demand}
        self.lenders = {
            leaf: self.usage.fullness(tree.queues[leaf], shares[leaf])
            for leaf in tree.queues
            if any(leaf in leaves for leaves in right.values())
            and all(leaf in leaves or not self._has_loan(leaf, demand[ours]) for ours, leaves in right.items())
        }
        """Leaves above their share that the gang may call back from, with how far above they are, in millionths."""

    def _lenders(self, ours: str, demand: Mapping[str, Amounts]) -> set[str]:
        """Leaves that one of our queues may call back from."""
        tree, mine = self.tree, self.tree.paths[ours]
        entitled: list[str] = []
        for name in mine:
            used, more = self.usage.below(name), self._wanted_below(name, demand)
            asked = [r for r in tree.queues[name].resources if more.get(r)]
            if any(used.get(r, 0) + more[r] > self._shares[name].get(r, 0) for r in asked):
                break
            entitled.append(name)
        lenders: set[str] = set()
        for leaf in tree.queues if entitled else ():
            if leaf in demand or not tree.is_leaf(leaf) or tree.fault(leaf) is not None:
                continue
            apart = [name for name in tree.paths.get(leaf, ()) if name not in mine]
            level = next((name for name in mine if tree.queues[name].parent == tree.queues[apart[-1]].parent), "")
            if level not in entitled or tree.queues[leaf].tree != tree.queues[ours].tree:
                continue
            if all(self._has_loan(name, demand[ours]) for name in apart):
                lenders.add(leaf)
        return lenders

    def _wanted_below(self, name: str, demand: Mapping[str, Amounts]) -> dict[str, int]:
        """The demand of the gang in a queue and in those below it."""
        total: dict[str, int] = {}
        for ours, amounts in demand.items():
            if name in self.tree.paths[ours]:
                for resource, amount in amounts.items():
                    total[resource] = total.get(resource, 0) + amount
        return total

    def _has_loan(self, name: str, demand: Amounts) -> bool:
        return self.is_above(self.tree.queues[name], self.usage.below(name), demand)

    def apart(self, leaf: str) -> list[str]:
        """The queues above a leaf, itself included, that are not above all of ours."""
        return [name for name in self.tree.paths.get(leaf, ()) if name not in self._mine]

    def is_above(self, queue: QuotaQueue, used: Amounts, given: Amounts) -> bool:
        """True if a queue has more than its share and its guarantee of a resource that is wanted and given."""
        share = self._shares[queue.name]
        return any(
            used.get(r, 0) > max(share.get(r, 0), min(queue.guaranteed.get(r, 0), NO_LIMIT - 1))
            for r in queue.resources
            if self._demand.get(r) and given.get(r)
        )

    def rounds(
        self, running: Sequence[Running], account: Callable[[PodFacts], str | None], now_s: float
    ) -> list[list[Running]]:
        """Units to go, in rounds; a later one holds the earlier ones."""
        if not self.lenders:
            return []
        surplus: list[tuple[Order, Running, PodFacts]] = []
        whole: dict[bool, list[tuple[Order, Running]]] = {False: [], True: []}
        for unit in running:
            pods = [pod for pod in unit.pods if not pod.terminating]
            theirs = {account(pod) or "" for pod in pods}
            lending = theirs & self.lenders.keys() if unit.preemptible else ()
            if not lending or any(is_fixed(pod.labels) for pod in pods):
                continue
            if any(self._is_young(queue, pods, now_s) for queue in lending):
                continue
            above = max(self.lenders[queue] for queue in lending)
            order = (-above, unit.priority, -max(pod.created_s for pod in pods), unit.name)
            surplus += ((order, unit, pod) for pod in _above_minima(unit, pods) if account(pod) in lending)
            if theirs == lending:
                whole[bool(base_of(unit))].append((order, unit))
        rounds: list[list[Running]] = []
        for rank in range(3):
            ledger = _ReclaimedAmounts(self, account)
            single = [
                (unit, pod) for order, unit, pod in sorted(surplus, key=lambda entry: entry[0]) if ledger.take([pod])
            ]
            taken: list[Running] = []
            for stage in (True, False)[:rank]:
                for _, unit in sorted(whole[stage], key=lambda entry: entry[0]):
                    gone = {pod.uid for owner, pod in single if owner.name == unit.name}
                    if ledger.take([pod for pod in unit.pods if pod.uid not in gone]):
                        taken.append(unit)
            names = {unit.name for unit in taken}
            alone = [
                Running(f"pod:{pod.namespace}/{pod.name}", unit.priority, (pod,))
                for unit, pod in single
                if unit.name not in names
            ]
            units = [*alone, *taken]
            if units and (not rounds or len(units) != len(rounds[-1]) or {*names} != {u.name for u in rounds[-1]}):
                rounds.append(units)
        return rounds

    def _is_young(self, queue: str, pods: Iterable[PodFacts], now_s: float) -> bool:
        least = max(quota_queue.min_runtime_s for quota_queue in self.tree.path(queue))
        return least > 0 and now_s - min(pod.created_s for pod in pods) < least


class _ReclaimedAmounts:
    """The use of queues without the units taken so far. It takes no more than queues have above their shares."""

    def __init__(self, reclaim: Reclaim, account: Callable[[PodFacts], str | None]) -> None:
        self._reclaim, self._account = reclaim, account
        self._used: dict[str, dict[str, int]] = {}

    def take(self, pods: Sequence[PodFacts]) -> bool:
        if not pods:
            return False
        reclaim = self._reclaim
        by_queue: dict[str, list[PodFacts]] = {}
        for pod in pods:
            by_queue.setdefault(self._account(pod) or "", []).append(pod)
        gives = {queue: reclaim.usage.counted(own) for queue, own in by_queue.items()}
        apart = [(queue, name) for queue in by_queue for name in reclaim.apart(queue)]
        if not all(
            reclaim.is_above(reclaim.tree.queues[name], self._left(name), gives[queue]) for queue, name in apart
        ):
            return False
        for queue, name in apart:
            used = self._left(name)
            for resource, amount in gives[queue].items():
                used[resource] = used.get(resource, 0) - amount
        return bool(apart)

    def _left(self, name: str) -> dict[str, int]:
        if name not in self._used:
            self._used[name] = dict(self._reclaim.usage.below(name))
        return self._used[name]


def _above_minima(unit: Running, pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Pods that a unit can do without, the elder ones kept."""
    left = dict(unit.minimums)
    surplus = []
    for pod in sorted(pods, key=lambda pod: (pod.created_s, pod.name)) if left else ():
        left[pod.group] = left.get(pod.group, 1) - 1
        if left[pod.group] < 0:
            surplus.append(pod)
    return surplus
