"""GPUs by the minor: every spelling of a request, and a brute-force referee for which cards a pod may get."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fleet import device

from grove.api.koordinator import Device
from grove.scheduler.devices.gpu_cards import FULL, Allotment, Card, CardRequest, NodeDevices
from grove.scheduler.devices.koordinator_objects import (
    HINT,
    JOINT,
    PARTITION_SPEC,
    PARTITIONS,
    InvalidCardRequest,
    read_devices,
    want_of,
)

K = "koordinator.sh/"
GI = 2**30


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"nvidia.com/gpu": 2}, CardRequest(2), id="two cards"),
        pytest.param({"amd.com/gpu": 1}, CardRequest(1), id="of another vendor"),
        pytest.param({f"{K}gpu": 200}, CardRequest(2, 100, 0, 100), id="two cards in parts"),
        pytest.param({f"{K}gpu": 50}, CardRequest(1, 50, 0, 50), id="half a card"),
        pytest.param({f"{K}gpu": 150}, None, id="a card and a half means nothing"),
        pytest.param({f"{K}gpu-core": 50, f"{K}gpu-memory": 8 * GI}, CardRequest(1, 50, 8 * GI), id="core and memory"),
        pytest.param({f"{K}gpu-core": 30, f"{K}gpu-memory-ratio": 40}, CardRequest(1, 30, 0, 40), id="core and ratio"),
        pytest.param({f"{K}gpu-core": 200, f"{K}gpu-memory-ratio": 200}, CardRequest(2, 100, 0, 100), id="whole cards"),
        pytest.param(
            {f"{K}gpu.shared": 2, f"{K}gpu-core": 100, f"{K}gpu-memory": 16 * GI},
            CardRequest(2, 50, 8 * GI),
            id="shared over two cards",
        ),
        pytest.param({f"{K}gpu.shared": 2, f"{K}gpu-memory-ratio": 100}, CardRequest(2, 0, 0, 50), id="shared memory"),
        pytest.param({f"{K}gpu-core": 50}, None, id="core alone"),
        pytest.param({f"{K}gpu-memory": GI}, None, id="memory alone"),
        pytest.param({"nvidia.com/gpu": 1, f"{K}gpu-core": 50}, None, id="two spellings at once"),
        pytest.param({f"{K}rdma": 100}, CardRequest(0, rdma=100), id="RDMA alone"),
        pytest.param({"cpu": 1}, "nothing", id="no devices"),
        pytest.param({"nvidia.com/gpu": -1}, None, id="a negative amount"),
    ],
)
def test_every_spelling(asked: dict[str, int], want: CardRequest | str | None) -> None:
    requests = tuple(sorted(asked.items()))
    if want is None:
        with pytest.raises(InvalidCardRequest):
            want_of(requests, {})
    else:
        assert want_of(requests, {}) == (None if want == "nothing" else want)


def card_node(
    *, cards: int = 4, pcie: int = 2, nics: int = 0, annotations: dict[str, str] | None = None
) -> NodeDevices:
    body = device("n", cards, pcie=pcie, nics=nics, **({"annotations": annotations} if annotations else {}))
    return read_devices(msgspec.convert(body, Device))


def got(found: Allotment | None) -> list[int] | None:
    return [minor for minor, _, _ in found.cards] if found is not None else None


def test_cards_come_from_one_place_and_the_fullest_that_suffices() -> None:
    here = card_node(cards=8, pcie=4)
    here.take(Allotment(((0, FULL, 80 * GI),)))
    assert got(here.allot(CardRequest(3))) == [1, 2, 3]
    assert got(here.allot(CardRequest(4))) == [4, 5, 6, 7]
    assert got(here.allot(CardRequest(5))) is not None
    assert got(here.allot(CardRequest(5, scope="PCIe"))) is None


def test_shares_fill_one_card_before_the_next_and_never_pass_its_memory() -> None:
    here, half = card_node(), CardRequest(1, 50, 30 * GI)
    chosen = []
    while (one := here.allot(half)) is not None:
        here.take(one)
        chosen += got(one) or []
    assert chosen == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(card.memory == 20 * GI for card in here.cards.values())


def test_partition_tables_and_joint_rdma_are_kept() -> None:
    table = '{"2":[{"minors":[0,1],"allocationScore":1},{"minors":[2,3],"allocationScore":2}]}'
    here = card_node(annotations={PARTITIONS: table}, nics=1)
    said = {PARTITION_SPEC: '{"allocatePolicy":"Restricted"}'}
    want = want_of((("nvidia.com/gpu", 2),), said)
    assert want is not None
    assert got(here.allot(want)) == [2, 3]
    here.take(Allotment(((2, FULL, 80 * GI),)))
    assert got(here.allot(want)) == [0, 1]
    here.take(Allotment(((1, FULL, 80 * GI),)))
    assert here.allot(want) is None

    joint = {JOINT: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}', HINT: '{"gpu":{}}'}
    near = want_of((("nvidia.com/gpu", 1),), joint)
    assert near is not None
    fresh = card_node(nics=1)
    found = fresh.allot(near)
    assert found is not None
    assert (got(found), found.rdma) == ([0], ((0, 100),))


cards_ = st.lists(st.tuples(st.sampled_from([0, 30, 50, 100]), st.sampled_from([0, 40, 80])), min_size=1, max_size=6)
wants = st.builds(
    CardRequest,
    st.integers(1, 4),
    st.sampled_from([30, 50, 100]),
    st.sampled_from([0, 40, 80]),
    st.just(0),
    scope=st.sampled_from(["", "PCIe", "NUMANode"]),
)


def brute_force(here: NodeDevices, want: CardRequest) -> bool:
    """The referee: whether any set of cards at all will do."""

    def fits(card: Card) -> bool:
        memory = want.memory or card.size * want.core // FULL
        return card.core >= want.core and card.memory >= memory

    for chosen in combinations(here.cards.values(), want.cards):
        places = {card.pcie if want.scope == "PCIe" else card.numa for card in chosen}
        if all(map(fits, chosen)) and (not want.scope or len(places) == 1):
            return True
    return False


@given(cards_, wants)
def test_a_pod_gets_cards_exactly_when_some_set_of_them_will_do(
    state: list[tuple[int, int]], want: CardRequest
) -> None:
    here = NodeDevices(
        {
            minor: Card(minor, "", str(minor // 2), minor // 4, 80, core, memory)
            for minor, (core, memory) in enumerate(state)
        }
    )
    found = here.allot(want)
    assert (found is not None) == brute_force(here, want)
    if found is not None:
        assert len({minor for minor, _, _ in found.cards}) == want.cards
        here.take(found)
        assert all(card.core >= 0 and card.memory >= 0 for card in here.cards.values())


@given(cards_, wants)
def test_what_is_counted_as_capacity_can_be_given_and_comes_back(
    state: list[tuple[int, int]], want: CardRequest
) -> None:
    here = NodeDevices(
        {
            minor: Card(minor, "", str(minor // 2), minor // 4, 80, core, memory)
            for minor, (core, memory) in enumerate(state)
        }
    )
    before = [(card.core, card.memory) for card in here.cards.values()]
    capacity = here.pod_slots(want)
    assert before == [(card.core, card.memory) for card in here.cards.values()]
    for _ in range(capacity):
        one = here.allot(want)
        assert one is not None
        here.take(one)
    assert here.allot(want) is None


few_cards = st.lists(st.tuples(st.sampled_from([30, 50, 100]), st.sampled_from([40, 80])), min_size=1, max_size=4)
small_wants = st.builds(
    CardRequest,
    st.integers(1, 3),
    st.sampled_from([30, 50, 100]),
    st.sampled_from([0, 40]),
    st.just(0),
    scope=st.sampled_from(["", "PCIe", "NUMANode"]),
)


def most_pods(here: NodeDevices, want: CardRequest) -> int:
    """The referee: the most pods that any way of giving cards away serves, one after the other."""
    best = 0
    for chosen in combinations(sorted(here.cards), want.cards):
        cards = [here.cards[minor] for minor in chosen]
        one = Allotment(tuple((c.minor, want.core, want.memory or c.size * want.core // FULL) for c in cards))
        places = {card.pcie if want.scope == "PCIe" else card.numa for card in cards}
        here.take(one)
        if all(c.core >= 0 and c.memory >= 0 for c in cards) and (not want.scope or len(places) == 1):
            best = max(best, 1 + most_pods(here, want))
        here.take(one, -1)
    return best


@given(few_cards, small_wants)
def test_as_many_pods_of_a_kind_get_cards_as_any_way_of_giving_them_away_serves(
    state: list[tuple[int, int]], want: CardRequest
) -> None:
    here = NodeDevices(
        {
            minor: Card(minor, "", str(minor // 2), minor // 4, 80, core, memory)
            for minor, (core, memory) in enumerate(state)
        }
    )
    assert here.pod_slots(want) == most_pods(here, want)


def test_a_device_with_two_equal_minors_gives_nothing() -> None:
    body = device("n", 2)
    body["spec"]["devices"][1]["minor"] = 0
    here = read_devices(msgspec.convert(body, Device))
    assert here.fault == "it lists gpu minor 0 twice"
    assert here.allot(CardRequest(1)) is None


@pytest.mark.parametrize(
    ("memory", "fault"),
    [
        pytest.param("-80Gi", "gpu minor 1 has a negative amount", id="a negative amount"),
        pytest.param("80Gx", "80Gx", id="an unknown unit"),
    ],
)
def test_a_device_with_an_amount_that_is_none_gives_nothing(memory: str, fault: str) -> None:
    body = device("n", 2)
    body["spec"]["devices"][1]["resources"]["koordinator.sh/gpu-memory"] = memory
    here = read_devices(msgspec.convert(body, Device))
    assert fault in here.fault
    assert here.allot(CardRequest(1)) is None
