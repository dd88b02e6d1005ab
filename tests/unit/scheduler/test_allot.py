"""Which devices claims get: tables of Kubernetes' rules, and small cases against every way there is."""

from __future__ import annotations

from itertools import permutations, product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grove.api.core import DeviceClass, ResourceSlice
from grove.scheduler.devices.claim_requests import ClaimRequests, MatchAttribute, counted, read_claim_requests, set_name
from grove.scheduler.devices.device_allocation import MOST_DEVICES, allot, copies, device_signature
from grove.scheduler.devices.device_inventory import ANY, SHARED, Device, DeviceInventory, DeviceRequest, is_shorthand

DRIVER = "gpu.example.com"
NUMA = f"{DRIVER}/numa"
LARGE = f'device.attributes["{DRIVER}"].size == "large"'
SMALL = f'device.attributes["{DRIVER}"].size == "small"'


def device(name: str, node: str = "n1", **attributes: object) -> Device:
    return Device((DRIVER, node, name), node, None, {f"{DRIVER}/{key}": value for key, value in attributes.items()})


def ask(name: str, count: int, *texts: str) -> DeviceRequest:
    return DeviceRequest(name, "gpu", count, texts)


def plain(*asked: DeviceRequest) -> ClaimRequests:
    return ClaimRequests(tuple((one,) for one in asked))


def names(wants: list[ClaimRequests], devices: list[Device], taken: tuple[str, ...] = ()) -> list[list[str]] | None:
    """`request=device` of each claim."""
    found = allot(wants, devices, {(DRIVER, "n1", name) for name in taken})
    return None if found is None else [[f"{asked.name}={d.id[2]}" for asked, d in chosen] for chosen in found]


@pytest.mark.parametrize(
    ("asked", "taken", "want"),
    [
        pytest.param([ask("any", 1)], (), ["any=small"], id="the first that will do"),
        pytest.param([ask("any", 2)], (), ["any=large", "any=small"], id="two"),
        pytest.param([ask("any", 3)], (), None, id="one too many"),
        pytest.param([ask("any", 1)], ("small",), ["any=large"], id="not one that is taken"),
        pytest.param([ask("big", 1, LARGE), ask("any", 1)], (), ["any=small", "big=large"], id="hard before easy"),
        pytest.param([ask("any", 1), ask("big", 1, LARGE)], (), ["any=small", "big=large"], id="easy before hard"),
        pytest.param([ask("any", 1), ask("big", 1, LARGE)], ("small",), None, id="both need the same"),
        pytest.param([ask("all", 0)], (), ["all=large", "all=small"], id="all there are"),
        pytest.param([ask("all", 0)], ("small",), None, id="not all when one is taken"),
        pytest.param([ask("all", 0, LARGE)], ("small",), ["all=large"], id="all that match, others may be taken"),
        pytest.param([ask("all", 0, 'device.driver == "x"')], (), None, id="all of nothing is nothing"),
        pytest.param([ask("all", 0, LARGE), ask("any", 1)], (), ["all=large", "any=small"], id="all large and another"),
        pytest.param([ask("all", 0), ask("any", 1)], (), None, id="nothing is left beside all"),
        pytest.param([ask("all", 0), ask("again", 0)], (), None, id="all cannot be had twice"),
    ],
)
def test_one_claim(asked: list[DeviceRequest], taken: tuple[str, ...], want: list[str] | None) -> None:
    devices = [device("small", size="small"), device("large", size="large")]
    found = names([plain(*asked)], devices, taken)
    assert (None if found is None else found[0]) == want


@pytest.mark.parametrize(
    ("taken", "want"),
    [
        pytest.param((), ["r/big=l0"], id="the first alternative"),
        pytest.param(("l0",), ["r/pair=s0", "r/pair=s1"], id="the next when the first cannot be had"),
        pytest.param(("l0", "s0"), None, id="none of them"),
    ],
)
def test_alternatives_in_order(taken: tuple[str, ...], want: list[str] | None) -> None:
    devices = [device("l0", size="large"), device("s0", size="small"), device("s1", size="small")]
    wants = ClaimRequests(((ask("r/big", 1, LARGE), ask("r/pair", 2, SMALL)),))
    found = names([wants], devices, taken)
    assert (None if found is None else found[0]) == want


def test_an_alternative_gives_way_when_another_request_needs_its_device() -> None:
    devices = [device("l0", size="large"), device("s0", size="small")]
    wants = ClaimRequests(((ask("r/big", 1, LARGE), ask("r/small", 1, SMALL)), (ask("big", 1, LARGE),)))
    assert names([wants], devices) == [["big=l0", "r/small=s0"]]


@pytest.mark.parametrize(
    ("same", "want"),
    [
        pytest.param(MatchAttribute(NUMA), ["a=d1", "b=d3"], id="all requests"),
        pytest.param(MatchAttribute(NUMA, frozenset(("a", "b"))), ["a=d1", "b=d3"], id="the requests it names"),
        pytest.param(MatchAttribute(NUMA, frozenset(("a",))), ["a=d0", "b=d1"], id="one request agrees with itself"),
        pytest.param(MatchAttribute(f"{DRIVER}/none"), None, id="an attribute that no device has"),
    ],
)
def test_devices_that_must_share_an_attribute(same: MatchAttribute, want: list[str] | None) -> None:
    """d0 is alone; d1 and d3 are together; d2 does not say where it is."""
    devices = [device("d0", numa=0), device("d1", numa=1), device("d2"), device("d3", numa=1)]
    wants = ClaimRequests(((ask("a", 1),), (ask("b", 1),)), (same,))
    found = names([wants], devices)
    assert (None if found is None else found[0]) == want


def test_a_number_and_a_truth_value_are_not_the_same() -> None:
    assert (
        names(
            [ClaimRequests(((ask("a", 2),),), (MatchAttribute(NUMA),))], [device("x", numa=1), device("y", numa=True)]
        )
        is None
    )


def test_all_devices_must_share_it_too() -> None:
    alike = ClaimRequests(((ask("all", 0),),), (MatchAttribute(NUMA),))
    assert names([alike], [device("x", numa=1), device("y", numa=1)]) == [["all=x", "all=y"]]
    assert names([alike], [device("x", numa=1), device("y", numa=2)]) is None


def test_a_constraint_on_a_request_covers_its_alternatives() -> None:
    wants = ClaimRequests(
        ((ask("r/one", 1), ask("r/two", 2)), (ask("s", 1),)), (MatchAttribute(NUMA, frozenset(("r", "s"))),)
    )
    assert names([wants], [device("x", numa=1), device("y", numa=2), device("z", numa=2)]) == [["r/one=y", "s=z"]]


def test_claims_do_not_share_each_others_constraints() -> None:
    pair = ClaimRequests(((ask("p", 2),),), (MatchAttribute(NUMA),))
    devices = [device(f"d{i}", numa=i // 2) for i in range(4)]
    assert names([pair, pair], devices) == [["p=d0", "p=d1"], ["p=d2", "p=d3"]]


def test_a_claim_has_no_more_devices_than_the_api_allows() -> None:
    many = [device(f"d{i:02}") for i in range(MOST_DEVICES + 1)]
    assert names([plain(ask("all", 0))], many) is None
    assert names([plain(ask("all", 0))], many[:-1]) is not None


@pytest.mark.parametrize(
    ("wants", "want"),
    [
        pytest.param(plain(ask("any", 1)), 5, id="one each"),
        pytest.param(plain(ask("any", 2)), 2, id="two each"),
        pytest.param(plain(ask("all", 0)), 1, id="all of them, once"),
        pytest.param(plain(ask("any", 1), ask("big", 1, LARGE)), 2, id="two large ones"),
        pytest.param(ClaimRequests(((ask("r/b", 1, LARGE), ask("r/s", 1, SMALL)),)), 5, id="either"),
        pytest.param(ClaimRequests(((ask("p", 2),),), (MatchAttribute(NUMA),)), 2, id="pairs of one kind"),
        pytest.param(plain(ask("any", 6)), 0, id="too many"),
    ],
)
def test_copies(wants: ClaimRequests, want: int) -> None:
    """Two large devices beside one small one, and two small ones elsewhere."""
    kinds = [("large", 0), ("large", 0), ("small", 0), ("small", 1), ("small", 1)]
    devices = [device(f"d{i}", size=size, numa=numa) for i, (size, numa) in enumerate(kinds)]
    assert copies([wants], devices, ()) == want


PCIE = f"{DRIVER}/pcie"
GPU, NIC = f'device.attributes["{DRIVER}"].kind == "gpu"', f'device.attributes["{DRIVER}"].kind == "nic"'


def on_roots(roots: int, gpus: int, nics: int) -> list[Device]:
    """This number of GPUs and NICs on each PCIe root."""
    kinds = [("gpu", gpus), ("nic", nics)]
    return [
        device(f"{kind}{root:02}-{i}", pcie=f"root{root}", kind=kind)
        for root in range(roots)
        for kind, count in kinds
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("roots", "gpus", "nics", "want"),
    [
        pytest.param(8, 1, 1, 8, id="eight pairs on eight roots"),
        pytest.param(16, 1, 1, 16, id="sixteen pairs"),
        pytest.param(4, 2, 1, 4, id="as many as there are NICs"),
        pytest.param(8, 2, 4, 16, id="several on each root"),
        pytest.param(8, 0, 1, 0, id="no GPU anywhere"),
    ],
)
def test_pairs_on_one_pcie_root_are_all_counted_and_all_given(roots: int, gpus: int, nics: int, want: int) -> None:
    pair = ClaimRequests(((ask("g", 1, GPU),), (ask("n", 1, NIC),)), (MatchAttribute(PCIE),))
    devices = on_roots(roots, gpus, nics)
    assert copies([pair], devices, ()) == want
    found = allot([pair] * want, devices, ())
    assert found is not None
    assert all(len({d.attributes[PCIE] for _, d in chosen}) == 1 for chosen in found)
    assert allot([pair] * (want + 1), devices, ()) is None


def test_a_pod_with_a_pair_and_one_more_device_is_counted_exactly() -> None:
    """The constraint covers two of three requests; the third takes a GPU of any root, so that a root is left over."""
    three = ClaimRequests(
        ((ask("g", 1, GPU),), (ask("n", 1, NIC),), (ask("m", 1, GPU),)), (MatchAttribute(PCIE, frozenset("gn")),)
    )
    assert copies([three], on_roots(8, 1, 1), ()) == 4
    assert copies([three], on_roots(6, 2, 1), ()) == 6


def test_what_is_counted_and_when_sets_are_counted_too() -> None:
    one = plain(ask("r", 2))
    assert counted([one, one]) == {"deviceclass/gpu": 4, ANY: 4}
    assert set_name([one, one]) == ""
    either = ClaimRequests(((ask("r/b", 1, LARGE), ask("r/s", 2, SMALL)),))
    assert counted([either]) == {ANY: 1}
    assert set_name([either]).startswith("deviceclass/gpu?set=")
    assert set_name([plain(ask("r", 1), ask("s", 1, LARGE))]) != ""
    assert set_name([either]) != set_name([either, one])
    shorthand = [is_shorthand(name) for name in (set_name([either]), ANY, SHARED, "deviceclass/gpu", "nvidia.com/gpu")]
    assert shorthand == [True, True, True, False, False]


def test_reading_a_claim() -> None:
    classes = {"gpu": msgspec.convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)}
    big = {"name": "big", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": LARGE}}]}
    requests = [
        {"name": "r", "firstAvailable": [big, {"name": "two", "deviceClassName": "gpu", "count": 2}]},
        {"name": "rest", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
    ]
    constraints = [{"requests": ["r"], "matchAttribute": NUMA}, {"matchAttribute": "other.io/x"}]
    assert read_claim_requests(
        {"devices": {"requests": requests, "constraints": constraints}}, classes
    ) == ClaimRequests(
        ((ask("r/big", 1, LARGE), ask("r/two", 2)), (ask("rest", 0),)),
        (MatchAttribute(NUMA, frozenset(("r",))), MatchAttribute("other.io/x")),
    )


def slice_of(name: str, node: str, *devices: str, generation: int = 1) -> ResourceSlice:
    pool = {"name": node, "generation": generation}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [{"name": one} for one in devices]}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def test_an_inventory_follows_its_slices() -> None:
    stock = DeviceInventory()
    first, second = slice_of("s1", "n1", "a", "b"), slice_of("s2", "n2", "c")
    assert stock.change(None, first) == {"n1"}
    assert stock.change(None, second) == {"n2"}
    assert {node: [d.id[2] for d in found] for node, found in stock.local.items()} == {"n1": ["a", "b"], "n2": ["c"]}
    assert stock.nodes_of([(DRIVER, "n1", "b"), (DRIVER, "n9", "x")]) == {"n1"}
    newer = slice_of("s3", "n1", "b", generation=2)
    assert stock.change(None, newer) == {"n1"}
    assert [d.id[2] for d in stock.local["n1"]] == ["b"]
    assert stock.change(newer, None) == {"n1"}
    assert [d.id[2] for d in stock.local["n1"]] == ["a", "b"]
    stock.change(first, None)
    assert list(stock.local) == ["n2"]


# Every way there is


ATTRIBUTES = st.fixed_dictionaries(
    {}, optional={"size": st.sampled_from(["large", "small"]), "numa": st.integers(0, 1)}
)
TEXTS = st.sampled_from([(), (LARGE,), (SMALL,)])
REQUEST = st.lists(st.tuples(st.integers(0, 2), TEXTS), min_size=1, max_size=2)
CLAIM = st.tuples(st.lists(REQUEST, min_size=1, max_size=2), st.booleans())


def built(claims: list[tuple[list[list[tuple[int, tuple[str, ...]]]], bool]]) -> list[ClaimRequests]:
    return [
        ClaimRequests(
            tuple(
                tuple(ask(f"r{r}/{a}", count, *texts) for a, (count, texts) in enumerate(either))
                for r, either in enumerate(requests)
            ),
            (MatchAttribute(NUMA),) if alike else (),
        )
        for requests, alike in claims
    ]


def brute_force(
    wants: list[ClaimRequests], devices: list[Device], taken: set[tuple[str, str, str]]
) -> tuple[int, ...] | None:
    """The first choice of alternatives for which some way of handing out devices works, tried one by one."""
    spots = [(c, either) for c, one in enumerate(wants) for either in one.requests]
    for pick in product(*(range(len(either)) for _, either in spots)):
        needed: list[tuple[int, DeviceRequest]] = []
        forced: list[tuple[int, Device]] = []
        ok = True
        for (claim, either), at in zip(spots, pick, strict=True):
            asked = either[at]
            if asked.count:
                needed += [(claim, asked)] * asked.count
                continue
            every = [d for d in devices if asked.matches(d)]
            ok = ok and bool(every) and not any(d.id in taken for d in every)
            forced += [(claim, d) for d in every]
        used = [d.id for _, d in forced]
        if not ok or len(set(used)) < len(used):
            continue
        free = [d for d in devices if d.id not in taken and d.id not in used]
        for way in permutations(free, len(needed)):
            if not all(asked.matches(d) for (_, asked), d in zip(needed, way, strict=True)):
                continue
            got = forced + [(claim, d) for (claim, _), d in zip(needed, way, strict=True)]
            if all(_is_alike([d for c, d in got if c == claim]) for claim, one in enumerate(wants) if one.same):
                return pick
    return None


def _is_alike(devices: list[Device]) -> bool:
    values = [d.attributes.get(NUMA) for d in devices]
    return None not in values and len(set(values)) <= 1


@settings(max_examples=400, deadline=None)
@given(st.lists(CLAIM, min_size=1, max_size=2), st.lists(st.tuples(ATTRIBUTES, st.booleans()), max_size=5))
def test_allot_finds_what_brute_force_finds_and_prefers_the_same_alternatives(claims, there) -> None:
    wants = built(claims)
    devices = [device(f"d{i}", **attributes) for i, (attributes, _) in enumerate(there)]
    taken = {d.id for d, (_, is_taken) in zip(devices, there, strict=True) if is_taken}
    want, found = brute_force(wants, devices, taken), allot(wants, devices, taken)
    assert (found is None) == (want is None)
    if found is None or want is None:
        return
    given_ids = [d.id for chosen in found for _, d in chosen]
    assert len(set(given_ids)) == len(given_ids)
    assert taken.isdisjoint(given_ids)
    spots = [(c, either) for c, one in enumerate(wants) for either in one.requests]
    for (claim, either), at in zip(spots, want, strict=True):
        asked = either[at]
        got = [d for one, d in found[claim] if one == asked]
        assert len(got) == (asked.count or sum(map(asked.matches, devices)))
        assert all(map(asked.matches, got))
    for one, chosen in zip(wants, found, strict=True):
        assert not one.same or _is_alike([d for _, d in chosen])


@settings(max_examples=200, deadline=None)
@given(CLAIM, st.lists(ATTRIBUTES, max_size=6))
def test_as_many_copies_are_counted_as_brute_force_finds(claim, there) -> None:
    wants = built([claim])
    devices = [device(f"d{i}", **attributes) for i, attributes in enumerate(there)]
    most = 0
    while brute_force([*wants] * (most + 1), devices, set()) is not None:
        most += 1
    assert copies(wants, devices, ()) == most


@settings(max_examples=100, deadline=None)
@given(CLAIM, st.lists(st.tuples(ATTRIBUTES, st.booleans()), max_size=4), st.randoms())
def test_nodes_that_look_alike_hold_as_many_copies(claim, there, rng) -> None:
    """Values are compared and not interpreted: numa 0 and 1 may have any names."""
    wants = built([claim])
    devices = [device(f"d{i}", **attributes) for i, (attributes, _) in enumerate(there)]
    taken = {d.id for d, (_, is_taken) in zip(devices, there, strict=True) if is_taken}
    renamed = {0: 7, 1: 3}
    others = [
        device(f"d{i}", **{k: renamed.get(v, v) if k == "numa" else v for k, v in attributes.items()})
        for i, (attributes, _) in enumerate(there)
    ]
    assert device_signature(wants, devices) == device_signature(wants, others)
    assert copies(wants, devices, taken) == copies(wants, others, taken)
