"""Reclaim for gangs whose groups are in several queues: each pod counts in its own queue, not in that of the first."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from grove.api.koordinator import QUOTA_PREEMPTIBLE
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.running import Running
from grove.scheduler.model.facts import NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup
from grove.scheduler.policy.queue_tree import QueueTree, QuotaQueue
from grove.scheduler.policy.quota_objects import ELASTIC, QUOTA, QueueObjects
from grove.scheduler.policy.quota_policy import FixedUse, Quota
from grove.scheduler.standard import STANDARD

CARD = "nvidia.com/gpu"


def cluster(cards: int, **guaranteed: int) -> Snapshot:
    """Nodes of one card, and queues that may use all of them; each lends what it does not use."""
    snapshot = Snapshot()
    for number in range(cards):
        name = f"n{number}"
        snapshot.add_node(NodeFacts(name, {CARD: 1, "pods": 20}, {"kubernetes.io/hostname": name}))
    tree = QueueTree(
        QuotaQueue(f"{ELASTIC}/{name}", guaranteed={CARD: own}, limit={CARD: cards}, weight={CARD: 1}, tree="t")
        for name, own in guaranteed.items()
    )
    quota = Quota(QueueObjects(tree, kinds=frozenset((ELASTIC,))))
    quota.ask({f"{ELASTIC}/{name}": {CARD: cards} for name, own in guaranteed.items() if own})
    snapshot.use(STANDARD.joined(policies=[quota, FixedUse(quota)]))
    return snapshot


def pods(gang: str, group: str, queue: str, count: int, **labels: str) -> tuple[PodFacts, ...]:
    card, more = Shape(((CARD, 1), ("pods", 1))), {QUOTA: queue, **labels}
    names = [f"{gang}-{group}-{number}" for number in range(count)]
    return tuple(PodFacts(name, "ns", name, card, more, gang=gang, group=group) for name in names)


def wanted(*groups: tuple[PodFacts, ...]) -> Gang:
    parts = tuple(PodGroup(own[0].group, len(own), own) for own in groups)
    return Gang("wanted", Branch("wanted", parts))


def runs(snapshot: Snapshot, name: str, *groups: tuple[PodFacts, ...]) -> Running:
    """The gang on the first free nodes."""
    minimums: Mapping[str, int] = {own[0].group: len(own) for own in groups}
    free = iter(sorted(snapshot.nodes.row_of.keys() - {pod.node for pod in snapshot.pods()}))
    placed = tuple(pod.on(next(free)) for own in groups for pod in own)
    for pod in placed:
        snapshot.add_pod(pod)
    return Running(name, 0, placed, minimums)


def test_each_queue_takes_back_its_own_share() -> None:
    """Two cards for each of two queues. The four together are more than the first queue has a right to."""
    snapshot = cluster(4, red=2, green=2, blue=0)
    unit = runs(snapshot, "loan", pods("loan", "w", "blue", 4))
    answer = preempt(snapshot, wanted(pods("wanted", "a", "red", 2), pods("wanted", "b", "green", 2)), [unit])
    assert isinstance(answer, Victims)
    assert (answer.gangs, answer.reclaimed) == (("loan",), True)


def test_nothing_is_taken_back_for_pods_of_a_queue_that_has_no_right_to_it() -> None:
    snapshot = cluster(4, red=4, grey=0, blue=0)
    unit = runs(snapshot, "loan", pods("loan", "w", "blue", 4))
    answer = preempt(snapshot, wanted(pods("wanted", "a", "red", 3), pods("wanted", "b", "grey", 1)), [unit])
    assert isinstance(answer, NoVictims)


def test_a_gang_stays_if_one_of_its_queues_has_no_more_than_its_share() -> None:
    snapshot = cluster(4, red=2, green=2, blue=0)
    both = runs(snapshot, "both", pods("both", "a", "blue", 2), pods("both", "b", "green", 2))
    answer = preempt(snapshot, wanted(pods("wanted", "a", "red", 2)), [both])
    assert isinstance(answer, NoVictims)


def test_a_gang_in_several_queues_goes_if_all_of_them_have_more_than_their_share() -> None:
    snapshot = cluster(4, red=4, green=0, blue=0)
    both = runs(snapshot, "both", pods("both", "a", "blue", 2), pods("both", "b", "green", 2))
    answer = preempt(snapshot, wanted(pods("wanted", "a", "red", 2)), [both])
    assert isinstance(answer, Victims)
    assert answer.gangs == ("both",)


def test_priority_alone_evicts_no_gang_that_has_a_group_in_another_queue() -> None:
    snapshot = cluster(4, red=2, green=2)
    both = runs(snapshot, "both", pods("both", "a", "red", 2), pods("both", "b", "green", 2))
    gang = wanted(pods("wanted", "a", "red", 2))
    answer = preempt(snapshot, Gang(gang.name, gang.root, priority=1000), [both])
    assert isinstance(answer, NoVictims)


def test_each_pod_that_cannot_be_evicted_needs_a_guarantee() -> None:
    """Also where the first pod of its queue can be evicted."""
    snapshot = cluster(4, red=1)
    fixed = pods("wanted", "b", "red", 2, **{QUOTA_PREEMPTIBLE: "false"})
    gang = wanted(pods("wanted", "a", "red", 1), fixed)
    needed = [pod for group in gang.groups() for pod in group.pods]
    assert snapshot.seams.refusal(snapshot, gang, needed) is not None
    assert snapshot.seams.refusal(snapshot, gang, needed[:2]) is None


def test_a_terminating_pod_that_stays_frees_nothing() -> None:
    """It is on a node that no longer reports, for example. An eviction of the gang does not free its card."""
    snapshot = cluster(4, red=4, blue=0)
    unit = runs(snapshot, "loan", pods("loan", "w", "blue", 4))
    stuck = structs.replace(unit.pods[0], terminating=True)
    snapshot.add_pod(stuck)
    unit = structs.replace(unit, pods=(stuck, *unit.pods[1:]))

    assert isinstance(preempt(snapshot, wanted(pods("wanted", "a", "red", 4)), [unit], leaving=()), NoVictims)
    answer = preempt(snapshot, wanted(pods("wanted", "a", "red", 3)), [unit], leaving=())
    assert isinstance(answer, Victims)
    assert {pod.uid for pod in answer.pods} == {pod.uid for pod in unit.pods[1:]}
