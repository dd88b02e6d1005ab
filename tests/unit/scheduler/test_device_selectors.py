"""Device selectors, what claims ask for, and which devices they get."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest

from grove.api.core import DeviceClass, ResourceSlice
from grove.scheduler.devices.cel import NotUnderstood, selector
from grove.scheduler.devices.claim_requests import read_claim_requests
from grove.scheduler.devices.device_inventory import Device, DeviceRequest, allocated, allocation, read_devices

DRIVER = "gpu.example.com"


def device(name: str = "d0", node: str = "n1", capacity: int = 80, **attributes: object) -> Device:
    named = {f"{DRIVER}/{key}": value for key, value in attributes.items()}
    return Device((DRIVER, node, name), node, None, named, {f"{DRIVER}/memory": Fraction(capacity << 30)})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        pytest.param('device.driver == "gpu.example.com"', True, id="the driver"),
        pytest.param('device.driver != "gpu.example.com"', False, id="another driver"),
        pytest.param('device.attributes["gpu.example.com"].model == "h100"', True, id="an attribute"),
        pytest.param("device.attributes['gpu.example.com'].model == 'h200'", False, id="another value, other quotes"),
        pytest.param('device.attributes["gpu.example.com"].model in ["a100", "h100"]', True, id="one of a list"),
        pytest.param('device.attributes["gpu.example.com"].index >= 3', False, id="a number that is too small"),
        pytest.param('device.attributes["gpu.example.com"].fast', True, id="a truth value by itself"),
        pytest.param('!device.attributes["gpu.example.com"].fast', False, id="its opposite"),
        pytest.param('!device.attributes["gpu.example.com"].none', False, id="the opposite of what is not there"),
        pytest.param('device.attributes["gpu.example.com"].none == "x"', False, id="an attribute it lacks"),
        pytest.param('device.attributes["gpu.example.com"].none != "x"', False, id="no match by lacking it"),
        pytest.param('device.attributes["gpu.example.com"].model < 3', False, id="a string is not less than a number"),
        pytest.param('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True, id="enough"),
        pytest.param(
            'device.capacity["gpu.example.com"].memory.compareTo(quantity("81Gi")) >= 0', False, id="too small"
        ),
        pytest.param(
            '(device.driver == "x" || device.attributes["gpu.example.com"].index == 2) && device.driver != "y"',
            True,
            id="brackets, or, and",
        ),
    ],
)
def test_selectors(text, matches):
    assert selector(text)(device(model="h100", index=2, fast=True)) is matches


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('device.driver.startsWith("gpu")', id="a function"),
        pytest.param('device.attributes["a"].b.c == 1', id="a deeper path"),
        pytest.param('device.capacity["a"].memory == quantity("1Gi")', id="a capacity without compareTo"),
        pytest.param('device.name == "x"', id="an unknown field"),
        pytest.param('device.driver == "a', id="an open quote"),
        pytest.param('device.driver == "a" &&', id="half a sentence"),
        pytest.param('device.driver == "a" device.driver', id="two sentences"),
        pytest.param('device.driver == "a" "b"', id="two words in a row"),
        pytest.param("(" * 5000 + "true" + ")" * 5000, id="nested too deep"),
        pytest.param("!" * 5000 + "true", id="denied too often"),
        pytest.param("", id="nothing"),
    ],
)
def test_what_is_not_understood_is_named_and_never_guessed(text):
    with pytest.raises(NotUnderstood) as refused:
        selector(text)
    assert repr(text) in str(refused.value)


def classes(*expressions: str, **spec) -> dict[str, DeviceClass]:
    body = {"selectors": [{"cel": {"expression": text}} for text in expressions], **spec}
    return {"gpu": msgspec.convert({"metadata": {"name": "gpu"}, "spec": body}, DeviceClass)}


def claim(**exactly) -> dict:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]}}


def test_a_request_has_the_selectors_of_its_class_and_its_own():
    own = 'device.attributes["a"].b == 1'
    found = read_claim_requests(
        claim(count=2, selectors=[{"cel": {"expression": own}}]), classes('device.driver == "x"')
    )
    assert found.requests == ((DeviceRequest("r", "gpu", 2, ('device.driver == "x"', own)),),)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(claim(allocationMode="Some"), "allocationMode Some", id="a mode of another day"),
        pytest.param(claim(adminAccess=True), "adminAccess", id="a look into devices of others"),
        pytest.param(claim(capacity={"requests": {"memory": "1Gi"}}), "capacity", id="a part of a device"),
        pytest.param({"devices": {"requests": [{"name": "r", "firstAvailable": []}]}}, "exactly", id="no alternatives"),
        pytest.param(
            {"devices": {"requests": [], "constraints": [{"distinctAttribute": "a/b"}]}},
            "constraints",
            id="unlike devices",
        ),
        pytest.param(
            {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "tpu"}}]}},
            "device class 'tpu' does not exist",
            id="an unknown class",
        ),
    ],
)
def test_a_claim_that_counting_cannot_meet_says_why(spec, said):
    with pytest.raises(NotUnderstood, match=said):
        read_claim_requests(spec, classes())


def slice_(generation: int, *devices: dict, **where) -> ResourceSlice:
    spec = {"driver": DRIVER, "pool": {"name": "p", "generation": generation}, "devices": list(devices), **where}
    return msgspec.convert({"metadata": {"name": f"s{generation}"}, "spec": spec}, ResourceSlice)


def test_only_the_newest_generation_of_a_pool_counts():
    found = read_devices([slice_(1, {"name": "old"}, nodeName="n1"), slice_(2, {"name": "new"}, nodeName="n1")])
    assert [d.id for d in found] == [(DRIVER, "p", "new")]


def test_names_without_a_domain_belong_to_the_driver():
    attributes = {"model": {"string": "h100"}, "other.io/x": {"int": 3}}
    (found,) = read_devices([slice_(1, {"name": "a", "attributes": attributes}, nodeName="n1")])
    assert dict(found.attributes) == {f"{DRIVER}/model": "h100", "other.io/x": 3}


@pytest.mark.parametrize("odd", ["taints", "consumesCounters", "bindingConditions", "allowMultipleAllocations"])
def test_a_device_that_is_given_by_other_rules_is_marked(odd):
    found = read_devices([slice_(1, {"name": "a", odd: [{"key": "x"}]}, {"name": "b"}, nodeName="n1")])
    assert [(d.id[2], d.is_odd) for d in found] == [("a", True), ("b", False)]


def test_an_allocation_names_devices_node_and_configuration():
    spec = {"devices": {"config": [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]}}
    kinds = classes(config=[{"opaque": {"driver": DRIVER, "parameters": {"b": 2}}}])
    found = allocation([(DeviceRequest("r", "gpu", 1), device("d0", "n1"))], spec, kinds)
    assert found["devices"]["results"] == [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0"}]
    assert [(c["source"], c.get("requests")) for c in found["devices"]["config"]] == [
        ("FromClass", ["r"]),
        ("FromClaim", None),
    ]
    (term,) = found["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert allocated(found) == {(DRIVER, "n1", "d0")}


def test_a_device_that_all_nodes_reach_binds_the_claim_to_none():
    wide = Device((DRIVER, "p", "d0"))
    assert "nodeSelector" not in allocation([(DeviceRequest("r", "gpu", 1), wide)], {}, classes())
