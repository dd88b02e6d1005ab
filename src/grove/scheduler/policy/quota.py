"""The policy of queues: no gang passes a limit, the queue furthest below its share goes first, loans are called back.

A gang is admitted with all its pods at once, at every level of the tree. Leftovers are lent: a queue may use more than
its share while nobody else asks. Who is entitled to more and cannot have it calls it back from queues above theirs, in
rounds: pods above minima first, then scaled gangs, base gangs last, so that a serving system gets smaller before it
goes away. Nothing is taken from a queue beyond what it has above its share, but for the one gang that straddles it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from grove.api.koordinator import DISABLE_PREEMPTIBLE, QUOTA_PREEMPTIBLE
from grove.api.labels import BASE_POD_GANG, POD_GANG
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
from grove.scheduler.policy.queues import CARDS, NO_LIMIT, NOTHING, THOUSANDTHS, Amounts, Queue, QueueTree, counted
from grove.scheduler.policy.quota_objects import QueueObjects

if TYPE_CHECKING:
    from grove.scheduler.cluster.snapshot import Snapshot
    from grove.scheduler.evict.victims import Running

KAI_PREEMPTIBILITY, NON_PREEMPTIBLE = "kai.scheduler/preemptibility", "non-preemptible"
SCALE = 10**6
"""Shares are compared in millionths."""
MOST_HOLDERS = 3
FIXED = "!"
"""After a queue's name: the account of its pods that nobody may put out."""


def is_fixed(labels: Mapping[str, str]) -> bool:
    """Whether a pod must not be put out for somebody else's sake."""
    return labels.get(DISABLE_PREEMPTIBLE) == "true" or needs_guarantee(labels)


def needs_guarantee(labels: Mapping[str, str]) -> bool:
    """Whether a pod may use only what is guaranteed to its queue, because it could not be called back."""
    return labels.get(QUOTA_PREEMPTIBLE) == "false" or labels.get(KAI_PREEMPTIBILITY) == NON_PREEMPTIBLE


class FixedUse(Policy):
    """Counts, beside `Quota`, what runs in a queue and cannot be called back."""

    name = "quota"

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

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
        """What waits in each leaf and could run if there were room, by resource."""
        self._shares: dict[str, dict[str, int]] | None = None
        self._read: _Usage | None = None
        self.use(objects)

    def use(self, objects: QueueObjects) -> None:
        self.objects, self.tree = objects, objects.tree
        self._shares, self._read = None, None

    def ask(self, waiting: Mapping[str, Mapping[str, int]]) -> None:
        """Tells what waits, by leaf; once a turn."""
        fresh = {queue: counted(amounts.items()) for queue, amounts in waiting.items()}
        self.waiting, self._shares, self._read = fresh, None, None

    # Numbers

    def used(self, snapshot: Snapshot, queue: str) -> dict[str, int]:
        return dict(self._reading(snapshot).below(queue))

    def _reading(self, snapshot: Snapshot) -> _Usage:
        """The use of all queues; worked out once for as long as nobody comes or goes."""
        if self._read is None or self._read.state is not snapshot.usage.state or self._read.tree is not self.tree:
            self._read = _Usage(snapshot, self.tree)
        return self._read

    def total(self, snapshot: Snapshot) -> dict[str, int]:
        """What the nodes have less what pods of no queue use: that is to be shared."""
        has: dict[str, int] = {}
        taken: dict[str, int] = {}
        for row, name in enumerate(snapshot.resources):
            has[name] = int(snapshot.allocatable[row].sum())
            taken[name] = has[name] - int(snapshot.free[row].sum())
        found, used = counted(has.items()), counted(taken.items())
        # Cards are published whole and in parts: on each node, whichever names it has them under.
        rows = ((at, THOUSANDTHS.get(name, 0)) for at, name in enumerate(snapshot.resources))
        if ways := [snapshot.allocatable[at] * of for at, of in rows if of]:
            found[CARDS] = int(np.maximum.reduce(ways).sum())
        for leaf in {leaf for root in self.tree.roots() for leaf in self.tree.leaves.get(root, ())}:
            for name, amount in counted(snapshot.usage.of(leaf).items()).items():
                used[name] = used.get(name, 0) - amount
        return {name: max(0, amount - max(0, used.get(name, 0))) for name, amount in found.items()}

    def shares(self, snapshot: Snapshot) -> dict[str, dict[str, int]]:
        """Fair shares of this turn. What is placed meanwhile stays wanted, so they hold until somebody new asks."""
        if self._shares is None:
            usage = self._reading(snapshot)
            wanted: dict[str, Amounts] = {}
            for leaf in {leaf for root in self.tree.roots() for leaf in self.tree.leaves.get(root, ())}:
                wanted[leaf] = _sum(usage.get(leaf, NOTHING), self.waiting.get(leaf, NOTHING))
            self._shares = self.tree.shares(wanted, self.total(snapshot))
        return self._shares

    # The policy

    def account(self, pod: PodFacts) -> str | None:
        return (self.objects.queue_of(pod.namespace, pod.labels) or None) if pod.namespace else None

    def refusal(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        name = self.account(pods[0])
        if name is None:
            return None
        if (why := self._unusable(name)) is not None:
            return why
        wants = counted(item for pod in pods for item in pod.shape.used)
        path = self.tree.path(name)
        usage = self._reading(snapshot)
        for queue in path:
            used = usage.below(queue.name)
            for resource, limit in sorted(queue.limit.items()):
                if (wanted := wants.get(resource, 0)) and used.get(resource, 0) + wanted > limit:
                    numbers = {"used": used.get(resource, 0), "limit": limit, "wanted": wanted}
                    names = {"resource": resource, "rule": "limit", "of": path[0].short}
                    return Reason(QUOTA_EXCEEDED, queue.short, numbers, names, self._holders(usage, queue, resource))
        if needs_guarantee(pods[0].labels):
            fixed = counted(snapshot.usage.of(f"{name}{FIXED}").items())
            for resource, most in sorted(path[0].guaranteed.items()):
                if (wanted := wants.get(resource, 0)) and fixed.get(resource, 0) + wanted > most:
                    numbers = {"used": fixed.get(resource, 0), "limit": most, "wanted": wanted}
                    return Reason(QUOTA_EXCEEDED, path[0].short, numbers, {"resource": resource, "rule": "guaranteed"})
        return self._kept_for_siblings(snapshot, usage, path, wants)

    def outlook(self, snapshot: Snapshot, gang: Gang, pods: Sequence[PodFacts]) -> Reason | None:
        """Whether the queue's share entitles the pods to room that others have, and who has more than theirs."""
        name = self.account(pods[0])
        if name is None or self._unusable(name) is not None:
            return None
        wants = counted(item for pod in pods for item in pod.shape.used)
        queue, share = self.tree.queues[name], self.shares(snapshot)[name]
        used = self._reading(snapshot).below(name)
        asked = sorted(r for r in queue.resources if wants.get(r))
        if not asked:
            return None
        over = [r for r in asked if used.get(r, 0) + wants[r] > share.get(r, 0)]
        resource = (over or asked)[0]
        numbers = {"used": used.get(resource, 0), "share": share.get(resource, 0), "wanted": wants[resource]}
        lenders = sorted(self.tree.queues[one].short for one in self._lenders(snapshot, name, wants))
        return Reason(
            MAY_CALL_BACK, queue.short, numbers,
            {"resource": resource, "over": "yes" if over else "", "from": ", ".join(lenders[:MOST_HOLDERS])},
        )  # fmt: skip

    def rank(self, snapshot: Snapshot, who: Applicant) -> tuple[int, ...]:
        name = self.objects.queue_of(who.name.removeprefix("pod:").partition("/")[0], who.labels)
        path = self.tree.path(name) if name else ()
        if not path:
            return (-who.priority, 0, 0)
        shares, usage = self.shares(snapshot), self._reading(snapshot)
        # From the root down: who is served is decided between siblings first.
        ratios = (self._filled(shares, usage, queue) for queue in reversed(path))
        return (-who.priority, -path[0].priority, *ratios)

    def may_put_out(self, snapshot: Snapshot, gang: Gang, victim: Running) -> bool | None:
        if any(is_fixed(pod.labels) for pod in victim.pods):
            return False
        theirs = self.account(victim.pods[0])
        ours = self._queue_of(gang)
        if ours is None or theirs is None or ours == theirs or theirs not in self.tree.queues:
            return None
        return False  # between queues nobody goes by priority: see `rounds`

    def rounds(self, snapshot: Snapshot, gang: Gang, running: Sequence[Running]) -> list[list[Running]]:
        """Units of other queues that the gang may take its share back from; a later round holds the earlier ones."""
        from grove.scheduler.evict.victims import Running as Unit

        ours = self._queue_of(gang)
        if ours is None or self._unusable(ours) is not None:
            return []
        wants = counted(
            item for group in gang.groups() for pod in group.pods[: group.need] for item in pod.shape.requests
        )
        lenders = self._lenders(snapshot, ours, wants)
        if not lenders:
            return []
        surplus: list[tuple[tuple[object, ...], Running, PodFacts]] = []
        whole: dict[bool, list[tuple[tuple[object, ...], Running]]] = {False: [], True: []}
        for unit in running:
            pods = [pod for pod in unit.pods if not pod.terminating]
            theirs = self.account(pods[0]) if pods and unit.preemptible else None
            if theirs is None or theirs not in lenders or any(is_fixed(pod.labels) for pod in pods):
                continue
            if self._is_young(theirs, pods):
                continue
            order = (-lenders[theirs], unit.priority, -max(pod.created_s for pod in pods), unit.name)
            extra = dict(unit.minimums)
            for pod in sorted(pods, key=lambda pod: (pod.created_s, pod.name)):
                if not unit.minimums:
                    break
                extra[pod.group] = extra.get(pod.group, 1) - 1
                if extra[pod.group] < 0:
                    surplus.append((order, unit, pod))
            whole[_is_scaled(pods)].append((order, unit))
        found: list[list[Running]] = []
        for rank in range(3):
            ledger = _Ledger(self, snapshot, ours, wants)
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

    def remembered(self, snapshot: Snapshot) -> Json:
        looks_at_age = any(queue.min_runtime_s for queue in self.tree.queues.values())
        return {
            "queues": [msgspec.to_builtins(queue) for queue in self.tree.queues.values()], "faults": self.tree.faults,
            "totals": self.tree.totals, "ofNamespace": self.objects.of_namespace, "default": self.objects.default,
            "kinds": sorted(self.objects.kinds), "waiting": self.waiting, "shares": self.shares(snapshot),
            "now": self._now_s() if looks_at_age else 0.0,
        }  # fmt: skip

    @classmethod
    def recalled(cls, told: Json) -> Quota:
        """The policy as it was when it was asked to remember."""
        tree = QueueTree((msgspec.convert(queue, Queue) for queue in told["queues"]), told["faults"], told["totals"])
        objects = QueueObjects(tree, told["ofNamespace"], told["default"], frozenset(told["kinds"]))
        found = cls(objects, lambda: float(told["now"]))
        found.waiting, found._shares = told["waiting"], told["shares"]
        return found

    # Parts of it

    def _unusable(self, name: str) -> Reason | None:
        if name not in self.tree.queues:
            return Reason(QUEUE_MISSING, name.partition("/")[2], names={"kind": name.partition("/")[0]})
        if (fault := self.tree.fault(name)) is not None:
            return Reason(QUEUE_INVALID, fault[0].partition("/")[2], names={"why": fault[1]})
        if not self.tree.is_leaf(name):
            return Reason(QUEUE_NOT_LEAF, name.partition("/")[2])
        return None

    def _queue_of(self, gang: Gang) -> str | None:
        pods = next((group.pods for group in gang.groups() if group.pods), ())
        return self.account(pods[0]) if pods else None

    def _kept_for_siblings(
        self, snapshot: Snapshot, usage: _Usage, path: Sequence[Queue], wants: Amounts
    ) -> Reason | None:
        """Whether room would be used that a sibling does not lend."""
        for queue in path:
            beside = self.tree.children.get(queue.parent, []) if queue.parent or queue.name in self.tree.roots() else []
            keepers = [
                self.tree.queues[name] for name in beside
                if name != queue.name and not self.tree.queues[name].lends and self.tree.queues[name].tree == queue.tree
            ]  # fmt: skip
            if not keepers:
                continue
            used = usage.below(queue.name)
            for resource, wanted in sorted(wants.items()):
                if used.get(resource, 0) + wanted <= queue.guaranteed.get(resource, 0):
                    continue
                kept = {
                    one.short: left for one in keepers
                    if (left := one.guaranteed.get(resource, 0) - usage.below(one.name).get(resource, 0)) > 0
                }  # fmt: skip
                if not kept:
                    continue
                whole = self._whole(snapshot, queue, resource)
                taken = sum(usage.below(name).get(resource, 0) for name in beside)
                if taken + wanted + sum(kept.values()) > whole:
                    numbers = {"kept": sum(kept.values()), "wanted": wanted, "free": max(0, whole - taken)}
                    return Reason(QUOTA_KEPT, queue.short, numbers, {"resource": resource, "by": ", ".join(kept)})
        return None

    def _whole(self, snapshot: Snapshot, queue: Queue, resource: str) -> int:
        """What a queue and its siblings have together."""
        if queue.parent:
            limit = self.tree.queues[queue.parent].limit.get(resource, NO_LIMIT)
            return min(limit, self.shares(snapshot)[queue.parent].get(resource, limit))
        said = self.tree.totals.get(queue.tree, NOTHING).get(resource)
        return said if said is not None else self.total(snapshot).get(resource, 0)

    def _holders(self, usage: _Usage, queue: Queue, resource: str) -> tuple[Reason, ...]:
        """Who below the full queue holds more than is guaranteed to it, the most first."""
        found = []
        for leaf in self.tree.leaves.get(queue.name, ()):
            one = self.tree.queues[leaf]
            used, own = counted(usage.get(leaf, NOTHING).items()).get(resource, 0), one.guaranteed.get(resource, 0)
            if used > own:
                found.append(Reason(HOLDS_MORE, one.short, {"used": used, "guaranteed": own}, {"resource": resource}))
        found.sort(key=lambda one: (one.numbers["guaranteed"] - one.numbers["used"], one.subject))
        return tuple(found[:MOST_HOLDERS])

    def _filled(self, shares: Mapping[str, Amounts], usage: _Usage, queue: Queue) -> int:
        """How full a queue's share is, by the resource it has most of, in millionths."""
        if (known := usage.filled.get(queue.name)) is not None:
            return known
        used = usage.below(queue.name)
        most = 0
        for resource in queue.resources:
            if have := used.get(resource, 0):
                share = shares[queue.name].get(resource, 0)
                most = max(most, have * SCALE // share if share > 0 else 2 * SCALE + have)
        usage.filled[queue.name] = most
        return most

    def _lenders(self, snapshot: Snapshot, ours: str, wants: Amounts) -> dict[str, int]:
        """Leaves above their share that our queue may call back from, with how far above they are, in millionths."""
        shares, usage = self.shares(snapshot), self._reading(snapshot)
        mine = self.tree.paths[ours]
        entitled: list[str] = []
        for name in mine:
            used = usage.below(name)
            asked = [r for r in self.tree.queues[name].resources if wants.get(r)]
            if any(used.get(r, 0) + wants[r] > shares[name].get(r, 0) for r in asked):
                break
            entitled.append(name)
        found: dict[str, int] = {}
        for leaf in self.tree.queues:
            if leaf == ours or not self.tree.is_leaf(leaf) or self.tree.fault(leaf) is not None:
                continue
            theirs = self.tree.paths[leaf]
            apart = [name for name in theirs if name not in mine]
            level = next(
                (name for name in mine if self.tree.queues[name].parent == self.tree.queues[apart[-1]].parent), ""
            )
            if level not in entitled or self.tree.queues[leaf].tree != self.tree.queues[ours].tree:
                continue
            if all(self._above(shares, usage, name, wants) for name in apart):
                found[leaf] = self._filled(shares, usage, self.tree.queues[leaf])
        return found

    def _above(self, shares: Mapping[str, Amounts], usage: _Usage, name: str, wants: Amounts) -> bool:
        """Whether a queue has more of something that is wanted than its share, and than what it is guaranteed."""
        used, queue = usage.below(name), self.tree.queues[name]
        return any(
            used.get(r, 0) > max(shares[name].get(r, 0), min(queue.guaranteed.get(r, 0), NO_LIMIT - 1))
            for r in queue.resources
            if wants.get(r)
        )

    def _is_young(self, queue: str, pods: Iterable[PodFacts]) -> bool:
        least = max(one.min_runtime_s for one in self.tree.path(queue))
        return least > 0 and self._now_s() - min(pod.created_s for pod in pods) < least


class _Usage:
    """What leaves use, as queues count it, and what is used below every queue."""

    def __init__(self, snapshot: Snapshot, tree: QueueTree) -> None:
        self.state, self.tree, self._of = snapshot.usage.state, tree, snapshot.usage.of
        self._leaves: dict[str, Amounts] = {}
        self._below: dict[str, dict[str, int]] = {}
        self.filled: dict[str, int] = {}

    def get(self, leaf: str, default: Amounts = NOTHING) -> Amounts:
        found = self._leaves.get(leaf)
        if found is None:
            found = self._leaves[leaf] = counted(self._of(leaf).items())
        return found

    def below(self, name: str) -> dict[str, int]:
        found = self._below.get(name)
        if found is None:
            found = self._below[name] = {}
            for leaf in self.tree.leaves.get(name, ()):
                for resource, amount in self.get(leaf).items():
                    found[resource] = found.get(resource, 0) + amount
        return found


class _Ledger:
    """What would be left in the queues if the units taken so far went: takes no more than what is above shares."""

    def __init__(self, quota: Quota, snapshot: Snapshot, ours: str, wants: Amounts) -> None:
        self._quota, self._wants = quota, wants
        self._shares, self._usage = quota.shares(snapshot), quota._reading(snapshot)
        self._mine = set(quota.tree.paths[ours])
        self._used: dict[str, dict[str, int]] = {}

    def take(self, pods: Sequence[PodFacts]) -> bool:
        if not pods:
            return False
        leaf = self._quota.account(pods[0]) or ""
        tree = self._quota.tree
        gives = counted(item for pod in pods for item in pod.shape.used)
        apart = [name for name in tree.paths.get(leaf, ()) if name not in self._mine]
        for name in apart:
            queue, used = tree.queues[name], self._left(name)
            if not any(
                used.get(r, 0) > max(self._shares[name].get(r, 0), min(queue.guaranteed.get(r, 0), NO_LIMIT - 1))
                for r in queue.resources
                if self._wants.get(r) and gives.get(r)
            ):
                return False
        for name in apart:
            used = self._left(name)
            for resource, amount in gives.items():
                used[resource] = used.get(resource, 0) - amount
        return bool(apart)

    def _left(self, name: str) -> dict[str, int]:
        if name not in self._used:
            self._used[name] = dict(self._usage.below(name))
        return self._used[name]


def _is_scaled(pods: Sequence[PodFacts]) -> bool:
    labels = pods[0].labels
    base = labels.get(BASE_POD_GANG)
    return bool(base) and base != labels.get(POD_GANG)


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    found = dict(one)
    for name, amount in other.items():
        found[name] = found.get(name, 0) + amount
    return found
