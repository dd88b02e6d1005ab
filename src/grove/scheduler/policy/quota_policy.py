"""The policy of queues: no gang passes a limit, the queue furthest below its share goes first, and loans can be
reclaimed.

A gang is admitted with all its pods at once, at every level of the tree. Unused quota is lent: a queue may use more
than its share while no other queue asks for it. A queue that is entitled to more and cannot have it takes it back
(`reclaim`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from grove.api.meta import Json
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang
from grove.scheduler.model.reasons import (
    HOLDS_MORE,
    MAY_CALL_BACK,
    QUEUE_INVALID,
    QUEUE_MISSING,
    QUEUE_NOT_LEAF,
    QUOTA_EXCEEDED,
    QUOTA_KEPT,
    Reason,
)
from grove.scheduler.model.seams import Applicant, Policy
from grove.scheduler.policy.queue_tree import (
    CARDS,
    NO_LIMIT,
    NOTHING,
    THOUSANDTHS,
    Amounts,
    QueueTree,
    QueueUsage,
    QuotaQueue,
    counted,
)
from grove.scheduler.policy.quota_objects import QueueObjects
from grove.scheduler.policy.reclaim import Reclaim, is_fixed, needs_guarantee

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot
    from grove.scheduler.evict.running import Running

MOST_HOLDERS = 3
FIXED = "!"
"""After a queue's name: the account of its pods that must not be evicted."""


class FixedUse(Policy):
    """Counts, beside `Quota`, what runs in a queue and cannot be called back."""

    name = "quota"

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

    def looks_at(self, gang: Gang) -> Hashable:
        return None

    def account(self, pod: PodFacts) -> str | None:
        queue = self._quota.account(pod)
        return f"{queue}{FIXED}" if queue and needs_guarantee(pod.labels) else None


class Quota(Policy):
    """`now_s` is the time pods' creation is compared with, for queues that leave what is young alone."""

    name = "quota"
    reclaims = True

    def __init__(self, objects: QueueObjects, now_s: Callable[[], float] = lambda: 0.0) -> None:
        self._now_s = now_s
        self.waiting: dict[str, dict[str, int]] = {}
        """What waits in each leaf and could run if there were capacity, by resource."""
        self._shares: dict[str, dict[str, int]] | None = None
        self._read: QueueUsage | None = None
        self.use(objects)

    def use(self, objects: QueueObjects) -> None:
        self.objects, self.tree = objects, objects.tree
        self._shares, self._read = None, None
        self.version += 1

    def note_demand(self, snapshot: Snapshot, asked: Mapping[str, Mapping[str, int]]) -> None:
        self.ask(asked)
        self.shares(snapshot)

    def ask(self, waiting: Mapping[str, Mapping[str, int]]) -> None:
        """Records the waiting demand by leaf. Called once in each turn."""
        card_memory = self._read.card_memory if self._read is not None else 0
        fresh = {queue: counted(amounts.items(), card_memory) for queue, amounts in waiting.items()}
        self.version += fresh != self.waiting
        self.waiting, self._shares, self._read = fresh, None, None

    def for_thread(self) -> Quota:
        """A copy for another thread, which reads the use of queues again: every answer changes it."""
        twin = copy(self)
        twin._read = None
        return twin

    # Numbers

    def used(self, snapshot: Snapshot, queue: str) -> dict[str, int]:
        return dict(self.reading(snapshot).below(queue))

    def reading(self, snapshot: Snapshot) -> QueueUsage:
        """The use of all queues, computed once until a pod comes or leaves."""
        if self._read is None or self._read.state is not snapshot.usage.state or self._read.tree is not self.tree:
            self._read = QueueUsage(snapshot, self.tree)
        return self._read

    def total(self, snapshot: Snapshot) -> dict[str, int]:
        """The amounts to share: the capacity of the nodes without the use of pods in no queue."""
        has: dict[str, int] = {}
        taken: dict[str, int] = {}
        for row, name in enumerate(snapshot.resources):
            has[name] = int(snapshot.allocatable[row].sum())
            taken[name] = has[name] - int(snapshot.free[row].sum())
        card_memory = self.reading(snapshot).card_memory
        capacity, used = counted(has.items(), card_memory), counted(taken.items(), card_memory)
        # Cards are published whole and in parts: on each node, whichever names it has them under.
        rows = ((at, THOUSANDTHS.get(name, 0)) for at, name in enumerate(snapshot.resources))
        if ways := [snapshot.allocatable[at] * of for at, of in rows if of]:
            capacity[CARDS] = int(np.maximum.reduce(ways).sum())
        for leaf in self.tree.all_leaves():
            for name, amount in self.reading(snapshot).get(leaf).items():
                used[name] = used.get(name, 0) - amount
        return {name: max(0, amount - max(0, used.get(name, 0))) for name, amount in capacity.items()}

    def shares(self, snapshot: Snapshot) -> dict[str, dict[str, int]]:
        """Fair shares of this turn. A placed unit still counts as demand, so they hold until a new unit asks."""
        if self._shares is None:
            usage = self.reading(snapshot)
            wanted: dict[str, Amounts] = {}
            for leaf in self.tree.all_leaves():
                wanted[leaf] = _sum(usage.get(leaf), self.waiting.get(leaf, NOTHING))
            self._shares = self.tree.shares(wanted, self.total(snapshot))
        return self._shares

    # The policy

    def account(self, pod: PodFacts) -> str | None:
        return (self.objects.queue_of(pod.namespace, pod.labels) or None) if pod.namespace else None

    def looks_at(self, gang: Gang) -> Hashable:
        """The queues of its pods, and which of them need a guarantee."""
        return tuple((self.account(pod), needs_guarantee(pod.labels)) for g in gang.groups() for pod in g.pods)

    def refusal(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        by_queue = self._by_queue(pods)
        for name in by_queue:
            if (why := self._unusable(name)) is not None:
                return why
        for name, own in by_queue.items():
            if (why := self._refusal_of(snapshot, name, own, by_queue)) is not None:
                return why
        return None

    def _refusal_of(
        self, snapshot: Snapshot, name: str, pods: Sequence[PodFacts], by_queue: Mapping[str, Sequence[PodFacts]]
    ) -> Reason | None:
        """Why pods of one queue may not run; a queue above it counts those of the gang's other queues too."""
        usage = self.reading(snapshot)
        demand = usage.counted(pods)
        path = self.tree.path(name)
        for queue in path:
            if len(by_queue) > 1:
                demand = usage.counted(self._below(queue, by_queue))
            used = usage.below(queue.name)
            for resource, limit in sorted(queue.limit.items()):
                if (wanted := demand.get(resource, 0)) and used.get(resource, 0) + wanted > limit:
                    leaving = self._leaving(snapshot, queue, resource)
                    numbers = {"used": used.get(resource, 0), "limit": limit, "wanted": wanted, "leaving": leaving}
                    names = {"resource": resource, "rule": "limit", "of": path[0].short}
                    return Reason(QUOTA_EXCEEDED, queue.short, numbers, names, self._holders(usage, queue, resource))
        demand = usage.counted([pod for pod in pods if needs_guarantee(pod.labels)])
        if demand:
            fixed = counted(snapshot.usage.of(f"{name}{FIXED}").items(), usage.card_memory)
            for resource, most in sorted(path[0].guaranteed.items()):
                if (wanted := demand.get(resource, 0)) and fixed.get(resource, 0) + wanted > most:
                    numbers = {"used": fixed.get(resource, 0), "limit": most, "wanted": wanted}
                    return Reason(QUOTA_EXCEEDED, path[0].short, numbers, {"resource": resource, "rule": "guaranteed"})
        return self._kept_for_siblings(snapshot, usage, path, usage.counted(pods))

    def _by_queue(self, pods: Sequence[PodFacts]) -> dict[str, list[PodFacts]]:
        by_queue: dict[str, list[PodFacts]] = {}
        for pod in pods:
            if (name := self.account(pod)) is not None:
                by_queue.setdefault(name, []).append(pod)
        return by_queue

    def could_admit(self, snapshot: Snapshot, pods: Sequence[PodFacts]) -> bool:
        usage, by_queue = self.reading(snapshot), self._by_queue(pods)
        if any(self._unusable(name) is not None for name in by_queue):
            return False
        for name, own in by_queue.items():
            path, fixed = self.tree.path(name), usage.counted([pod for pod in own if needs_guarantee(pod.labels)])
            if any(fixed.get(resource, 0) > most for resource, most in path[0].guaranteed.items()):
                return False
            for queue in path:
                demand = usage.counted(self._below(queue, by_queue))
                if any(demand.get(resource, 0) > limit for resource, limit in queue.limit.items()):
                    return False
        return bool(by_queue)

    def held_against(self, snapshot: Snapshot, pods: Sequence[PodFacts], held: Sequence[PodFacts]) -> Reason | None:
        usage, by_queue, theirs = self.reading(snapshot), self._by_queue(pods), self._by_queue(held)
        for queue in {queue.name: queue for name in by_queue for queue in self.tree.path(name)}.values():
            demand, used = usage.counted(self._below(queue, by_queue)), usage.below(queue.name)
            kept = self._kept_below(usage, queue, theirs)
            for resource, limit in sorted(queue.limit.items()):
                wanted, ahead = demand.get(resource, 0), kept.get(resource, 0)
                if wanted and ahead and used.get(resource, 0) + ahead + wanted > limit:
                    numbers = {"used": used.get(resource, 0), "limit": limit, "wanted": wanted, "held": ahead}
                    return Reason(QUOTA_EXCEEDED, queue.short, numbers, {"resource": resource, "rule": "limit"})
        return None

    def _below(self, queue: QuotaQueue, by_queue: Mapping[str, Sequence[PodFacts]]) -> list[PodFacts]:
        """Pods of a queue and of those below it."""
        below = {queue.name, *self.tree.leaves.get(queue.name, ())}
        return [pod for name, own in by_queue.items() if name in below for pod in own]

    def _kept_below(
        self, usage: QueueUsage, queue: QuotaQueue, held: Mapping[str, Sequence[PodFacts]]
    ) -> dict[str, int]:
        """The amounts held in a queue. Pods that wait for pods of their own queue add nothing above that queue."""
        total: dict[str, int] = {}
        for leaf, pods in held.items():
            path = self.tree.path(leaf)
            if queue not in path:
                continue
            amounts = dict(usage.counted(pods))
            for step in path[: path.index(queue)]:
                used = usage.below(step.name)
                for resource, limit in step.limit.items():
                    if resource in amounts:
                        amounts[resource] = min(amounts[resource], max(0, limit - used.get(resource, 0)))
            total = _sum(total, amounts)
        return total

    def outlook(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        """Whether its queues' shares entitle the gang to capacity that others use, and who has more than theirs.

        The reason names the first queue that has no right to more, else the first queue.
        """
        reclaim = self._reclaim(snapshot, pods)
        if reclaim is None:
            return None
        lenders = ", ".join(sorted(self.tree.queues[lender].short for lender in reclaim.lenders)[:MOST_HOLDERS])
        reasons: list[tuple[bool, Reason]] = []
        for name, own in self._by_queue(pods).items():
            queue, share, used = self.tree.queues[name], self.shares(snapshot)[name], reclaim.usage.below(name)
            demand = reclaim.usage.counted(own)
            asked = sorted(r for r in queue.resources if demand.get(r))
            over = [r for r in asked if used.get(r, 0) + demand[r] > share.get(r, 0)]
            for resource in (over or asked)[:1]:
                numbers = {"used": used.get(resource, 0), "share": share.get(resource, 0), "wanted": demand[resource]}
                names = {"resource": resource, "over": "yes" if over else "", "from": lenders}
                reasons.append((not over, Reason(MAY_CALL_BACK, queue.short, numbers, names)))
        return min(reasons, key=lambda entry: entry[0])[1] if reasons else None

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        name = self.objects.queue_of(who.namespace, who.labels)
        path = self.tree.path(name) if name else ()
        if not path:
            return (-who.priority, 0, 0)
        shares, usage = self.shares(snapshot), self.reading(snapshot)
        # From the root down: who is served is decided between siblings first.
        ratios = (usage.fullness(queue, shares[queue.name]) for queue in reversed(path))
        return (-who.priority, -path[0].priority, *ratios)

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool | None:
        if any(is_fixed(pod.labels) for pod in victim.pods):
            return False
        ours = {self.account(pod) for group in gang.groups() for pod in group.pods[:1]} - {None}
        theirs = {self.account(pod) for pod in victim.pods} & self.tree.queues.keys()
        return None if not ours or theirs <= ours else False  # between queues priority does not count: see `rounds`

    def rounds(self, snapshot: Snapshot, gang: Gang, running: Sequence[Running]) -> list[list[Running]]:
        """Units of other queues that the gang may take its share back from; a later round holds the earlier ones."""
        reclaim = self._reclaim_for(snapshot, gang)
        return reclaim.rounds(running, self.account, self._now_s()) if reclaim is not None else []

    def may_reclaim(self, snapshot: Snapshot, gang: Gang) -> bool:
        reclaim = self._reclaim_for(snapshot, gang)
        return reclaim is not None and bool(reclaim.lenders)

    def changes_in_s(self, snapshot: Snapshot) -> float | None:
        """Until the next pod is old enough to be called back, of queues that leave what is young alone."""
        least_of = {
            leaf: max(quota_queue.min_runtime_s for quota_queue in self.tree.path(leaf))
            for leaf in self.tree.all_leaves()
        }
        longest = max(least_of.values(), default=0)
        if not longest:
            return None
        now_s = self._now_s()
        young = (pod for pod in snapshot.pods() if now_s - pod.created_s < longest)
        left = (pod.created_s + least_of.get(self.account(pod) or "", 0) - now_s for pod in young)
        return min((seconds for seconds in left if seconds > 0), default=None)

    def _reclaim_for(self, snapshot: Snapshot, gang: Gang) -> Reclaim | None:
        return self._reclaim(snapshot, [pod for group in gang.groups() for pod in group.pods[: group.need]])

    def _reclaim(self, snapshot: Snapshot, pods: Sequence[PodFacts]) -> Reclaim | None:
        by_queue = self._by_queue(pods)
        if not by_queue or any(self._unusable(name) is not None for name in by_queue):
            return None
        usage = self.reading(snapshot)
        demand = {name: usage.counted(own) for name, own in by_queue.items()}
        return Reclaim(self.tree, self.shares(snapshot), usage, demand)

    def remembered(self, snapshot: Snapshot) -> Json:
        looks_at_age = any(queue.min_runtime_s for queue in self.tree.queues.values())
        return {
            "queues": [msgspec.to_builtins(queue) for queue in self.tree.queues.values()],
            "faults": self.tree.faults,
            "totals": self.tree.totals,
            "ofNamespace": self.objects.of_namespace,
            "default": self.objects.default,
            "kinds": sorted(self.objects.kinds),
            "waiting": self.waiting,
            "shares": self.shares(snapshot),
            "now": self._now_s() if looks_at_age else 0.0,
        }

    @classmethod
    def recalled(cls, record: Json) -> Quota:
        """The policy as it was when it was asked to remember."""
        tree = QueueTree(
            (msgspec.convert(queue, QuotaQueue) for queue in record["queues"]), record["faults"], record["totals"]
        )
        objects = QueueObjects(tree, record["ofNamespace"], record["default"], frozenset(record["kinds"]))
        quota = cls(objects, lambda: float(record["now"]))
        quota.waiting, quota._shares = record["waiting"], record["shares"]
        return quota

    # Parts of it

    def _unusable(self, name: str) -> Reason | None:
        if name not in self.tree.queues:
            return Reason(QUEUE_MISSING, name.partition("/")[2], names={"kind": name.partition("/")[0]})
        if (fault := self.tree.fault(name)) is not None:
            return Reason(QUEUE_INVALID, fault[0].partition("/")[2], names={"why": fault[1]})
        if not self.tree.is_leaf(name):
            return Reason(QUEUE_NOT_LEAF, name.partition("/")[2])
        return None

    def _kept_for_siblings(
        self, snapshot: Snapshot, usage: QueueUsage, path: Sequence[QuotaQueue], demand: Amounts
    ) -> Reason | None:
        """Whether it would use capacity that a sibling does not lend."""
        for queue in path:
            beside = self.tree.children.get(queue.parent, []) if queue.parent or queue.name in self.tree.roots() else []
            keepers = [
                self.tree.queues[name]
                for name in beside
                if name != queue.name and not self.tree.queues[name].lends and self.tree.queues[name].tree == queue.tree
            ]
            if not keepers:
                continue
            used = usage.below(queue.name)
            for resource, wanted in sorted(demand.items()):
                if used.get(resource, 0) + wanted <= queue.guaranteed.get(resource, 0):
                    continue
                kept = {
                    keeper.short: left
                    for keeper in keepers
                    if (left := keeper.guaranteed.get(resource, 0) - usage.below(keeper.name).get(resource, 0)) > 0
                }
                if not kept:
                    continue
                whole = self._whole(snapshot, queue, resource)
                taken = sum(usage.below(name).get(resource, 0) for name in beside)
                if taken + wanted + sum(kept.values()) > whole:
                    numbers = {"kept": sum(kept.values()), "wanted": wanted, "free": max(0, whole - taken)}
                    return Reason(QUOTA_KEPT, queue.short, numbers, {"resource": resource, "by": ", ".join(kept)})
        return None

    def _whole(self, snapshot: Snapshot, queue: QuotaQueue, resource: str) -> int:
        """The amount that a queue and its siblings have together."""
        if queue.parent:
            limit = self.tree.queues[queue.parent].limit.get(resource, NO_LIMIT)
            return min(limit, self.shares(snapshot)[queue.parent].get(resource, limit))
        total = self.tree.totals.get(queue.tree, NOTHING).get(resource)
        return total if total is not None else self.total(snapshot).get(resource, 0)

    def _leaving(self, snapshot: Snapshot, queue: QuotaQueue, resource: str) -> int:
        """The amounts of terminating pods below a queue. Pods that get their place are counted already."""
        below = set(self.tree.leaves.get(queue.name, ()))
        pods = (pod for pod in snapshot.terminating() if self.account(pod) in below)
        return self.reading(snapshot).counted(pods).get(resource, 0)

    def _holders(self, usage: QueueUsage, queue: QuotaQueue, resource: str) -> tuple[Reason, ...]:
        """Who below the full queue holds more than is guaranteed to it, the most first."""
        reasons = []
        for leaf in self.tree.leaves.get(queue.name, ()):
            quota_queue = self.tree.queues[leaf]
            used, own = usage.get(leaf).get(resource, 0), quota_queue.guaranteed.get(resource, 0)
            if used > own:
                reasons.append(
                    Reason(HOLDS_MORE, quota_queue.short, {"used": used, "guaranteed": own}, {"resource": resource})
                )
        reasons.sort(key=lambda reason: (reason.numbers["guaranteed"] - reason.numbers["used"], reason.subject))
        return tuple(reasons[:MOST_HOLDERS])


def _sum(amounts: Amounts, other: Amounts) -> dict[str, int]:
    total = dict(amounts)
    for name, amount in other.items():
        total[name] = total.get(name, 0) + amount
    return total
