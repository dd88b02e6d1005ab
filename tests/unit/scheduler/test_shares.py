"""Fair shares: exact water-filling as a referee, and the laws that hold for any tree of queues."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.model.facts import NodeFacts
from grove.scheduler.policy.fair_shares import ShareClaim, fair_shares, poured
from grove.scheduler.policy.queue_tree import NO_LIMIT, QueueTree, QuotaQueue
from grove.scheduler.policy.quota_objects import QueueObjects
from grove.scheduler.policy.quota_policy import Quota


def exact_level(amount: int, rooms: list[int], weights: list[int]) -> list[Fraction]:
    """The referee: the water level at which all of it is poured out, found over the heights where someone is full."""
    amount = min(amount, sum(capacity for capacity, weight in zip(rooms, weights, strict=True) if weight))
    heights = sorted(
        {Fraction(capacity, weight) for capacity, weight in zip(rooms, weights, strict=True) if weight and capacity}
    )
    below = Fraction(0)
    for height in [*heights, Fraction(10**9)]:
        held = sum(min(Fraction(r), height * w) for r, w in zip(rooms, weights, strict=True))
        if held >= amount:
            rising = sum(w for r, w in zip(rooms, weights, strict=True) if w and Fraction(r, w) > below)
            base = sum(min(Fraction(r), below * w) for r, w in zip(rooms, weights, strict=True))
            level = below + (amount - base) / rising if rising else below
            return [min(Fraction(r), level * w) for r, w in zip(rooms, weights, strict=True)]
        below = height
    return [Fraction(0)] * len(rooms)


vessels = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), min_size=1, max_size=6)


@given(st.integers(0, 120), vessels)
def test_what_is_poured_is_within_one_of_the_exact_level_and_nothing_is_lost(
    amount: int, found: list[tuple[int, int]]
) -> None:
    rooms, weights = [capacity for capacity, _ in found], [weight for _, weight in found]
    got = poured(amount, rooms, weights)
    want = exact_level(amount, rooms, weights)
    assert all(abs(one - exact) < 1 for one, exact in zip(got, want, strict=True)), (got, want)
    assert sum(got) == min(amount, sum(capacity for capacity, weight in found if weight))
    assert all(0 <= one <= capacity for one, capacity in zip(got, rooms, strict=True))


claims = st.builds(
    lambda own, wants, limit, weight, lends: ShareClaim(min(own, limit), wants, limit, weight, lends),
    st.integers(0, 20),
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(1, 5),
    st.booleans(),
)


@given(st.integers(0, 120), st.lists(claims, min_size=1, max_size=6))
def test_guarantees_come_first_and_no_share_passes_a_limit(total: int, found: list[ShareClaim]) -> None:
    got = fair_shares(total, found)
    assert sum(got) <= total
    for one, claim in zip(got, found, strict=True):
        assert one <= claim.limit
        assert one <= claim.most
    if sum(claim.first for claim in found) <= total:
        assert all(one >= claim.first for one, claim in zip(got, found, strict=True))
        if sum(claim.most for claim in found) >= total:
            assert sum(got) == total, "nothing is left over while somebody asks"


@pytest.mark.parametrize(
    ("total", "found", "want"),
    [
        pytest.param(12, [ShareClaim(4, 10, 20), ShareClaim(4, 10, 20)], [6, 6], id="the rest is shared alike"),
        pytest.param(12, [ShareClaim(4, 10, 20, 3), ShareClaim(4, 10, 20, 1)], [7, 5], id="by weight"),
        pytest.param(12, [ShareClaim(4, 1, 20), ShareClaim(4, 20, 20)], [1, 11], id="who asks for less lends"),
        pytest.param(12, [ShareClaim(4, 1, 20, 1, False), ShareClaim(4, 20, 20)], [4, 8], id="unless it does not lend"),
        pytest.param(12, [ShareClaim(4, 20, 5), ShareClaim(4, 20, 20)], [5, 7], id="a limit is a limit"),
        pytest.param(
            6, [ShareClaim(8, 8, 8), ShareClaim(4, 4, 4)], [4, 2], id="too much is guaranteed: cut in proportion"
        ),
        pytest.param(
            10, [ShareClaim(0, 9, 9), ShareClaim(0, 9, 9), ShareClaim(0, 9, 9)], [4, 3, 3], id="largest remainder first"
        ),
    ],
)
def test_fair_shares(total: int, found: list[ShareClaim], want: list[int]) -> None:
    assert fair_shares(total, found) == want


def queue(name: str, parent: str = "", own: int = 0, limit: int = NO_LIMIT, **more: int) -> QuotaQueue:
    limits = {"gpu": limit} if limit != NO_LIMIT else {}
    return QuotaQueue(f"Q/{name}", f"Q/{parent}" if parent else "", {"gpu": own}, limits, **more)  # type: ignore[arg-type]


def test_a_tree_shares_level_by_level() -> None:
    tree = QueueTree(
        [
            queue("red", own=8),
            queue("blue", own=8),
            queue("r1", "red", 6),
            queue("r2", "red", 2),
            queue("b1", "blue", 8),
        ]
    )
    found = tree.shares({"Q/r1": {"gpu": 10}, "Q/r2": {"gpu": 10}, "Q/b1": {"gpu": 2}}, {"gpu": 16})
    assert {name: share["gpu"] for name, share in found.items()} == {
        "Q/red": 14,
        "Q/blue": 2,
        "Q/b1": 2,
        "Q/r1": 9,
        "Q/r2": 5,
    }


@pytest.mark.parametrize(
    ("queues", "want"),
    [
        pytest.param([queue("a", "b"), queue("b", "a")], {"a": "cycle", "b": "cycle"}, id="a cycle"),
        pytest.param([queue("a", "a")], {"a": "cycle"}, id="its own parent"),
        pytest.param([queue("a", "gone")], {"a": "its parent gone does not exist"}, id="a missing parent"),
        pytest.param([queue("a", own=4, limit=2)], {"a": "more gpu is guaranteed"}, id="min above max"),
        pytest.param([queue("a"), queue("b", "a")], {}, id="nothing wrong"),
    ],
)
def test_a_queue_that_is_wrong_is_reported_and_the_others_go_on(queues: list[QuotaQueue], want: dict[str, str]) -> None:
    tree = QueueTree([*queues, queue("fine")])
    assert tree.faults.keys() == {f"Q/{name}" for name in want}
    assert all(words in tree.faults[f"Q/{name}"] for name, words in want.items())
    assert tree.fault("Q/fine") is None
    assert tree.shares({"Q/fine": {"gpu": 3}}, {"gpu": 8})["Q/fine"] == {"gpu": 3}
    assert len(list(tree.walk())) == len(queues) + 1


def test_the_fault_of_a_parent_is_that_of_its_queues() -> None:
    tree = QueueTree([queue("top", own=4, limit=2), queue("low", "top")])
    assert tree.fault("Q/low") == ("Q/top", "more gpu is guaranteed than its limit allows")


trees = st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 10), st.integers(0, 30)), min_size=1, max_size=7)


@given(trees, st.lists(st.integers(0, 30), min_size=7, max_size=7), st.integers(0, 60))
def test_in_any_tree_children_share_no_more_than_their_parent_has(
    shape: list[tuple[int, int, int]], asks: list[int], total: int
) -> None:
    queues = [
        queue(str(i), str(parent) if 0 <= parent < i else "", min(own, limit), limit)
        for i, (parent, own, limit) in enumerate(shape)
    ]
    tree = QueueTree(queues)
    assert not tree.faults
    found = tree.shares({f"Q/{i}": {"gpu": asks[i]} for i in range(len(shape))}, {"gpu": total})
    assert sum(found[name]["gpu"] for name in tree.roots()) <= total
    for parent, below in tree.children.items():
        if parent:
            assert sum(found[name]["gpu"] for name in below) <= found[parent]["gpu"]
    for one in queues:
        assert 0 <= found[one.name]["gpu"] <= one.limit.get("gpu", NO_LIMIT)


@pytest.mark.parametrize(
    ("amounts", "cards"),
    [
        pytest.param({"nvidia.com/gpu": 4}, 4000, id="cards, in thousandths"),
        pytest.param({"gpu": 4}, 4, id="a resource that is merely called so is itself"),
    ],
)
def test_what_is_to_be_shared_is_what_the_nodes_have(amounts: dict[str, int], cards: int) -> None:
    snapshot = Snapshot()
    snapshot.add_node(NodeFacts("n1", {**amounts, "pods": 20}))
    quota = Quota(QueueObjects(QueueTree([])))
    assert quota.total(snapshot)["gpu"] == cards
