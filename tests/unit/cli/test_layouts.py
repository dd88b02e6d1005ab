"""Fragmentation that means something, and colours that tell sets apart."""

from __future__ import annotations

import colorsys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.support import objects

from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.seen import Seen
from grove.show.colours import HUES, colours_of
from grove.show.drawing import svg_of
from grove.show.layout import Layout, layout_of
from grove.show.paint import domain_lines, level_table
from grove.sim.topology import LEVELS, Topology

BINDING = msgspec.convert(
    {"metadata": {"name": "t"}, "spec": {"levels": [{"domain": d, "key": k} for d, k in LEVELS]}},
    ClusterTopologyBinding,
)


def gpu_pod(name: str, node: str, gpus: int, set_: str, gang: str) -> Pod:
    own = {labels.POD_GANG: gang, labels.PART_OF: set_}
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": limits}]}
    return objects.pod(name, spec=spec, labels=own)


def layout(*pods: Pod, racks: int = 2, nodes: int = 2) -> Layout:
    fleet = [msgspec.convert(one, Node) for one in Topology(racks=racks, nodes=nodes).objects()]
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    whole = [
        msgspec.convert(
            {
                "metadata": {"name": one.metadata.name, "labels": one.metadata.labels},
                "status": {"allocatable": dict(one.status.allocatable), **ready},
            },
            Node,
        )
        for one in fleet
    ]
    return layout_of(Seen(pods=pods, nodes=whole, bindings=[BINDING]))


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([], (0.0, "", ()), id="an empty fleet"),
        pytest.param(
            [gpu_pod(f"p{i}", f"z0-b0-r0-n{i}", 8, "chat", "chat-0") for i in range(2)],
            (0.0, "", ()),
            id="one rack full",
        ),
        pytest.param(
            [gpu_pod("p", "z0-b0-r0-n0", 8, "chat", "chat-0")],
            (0.0, "", ()),
            id="half a rack takes another one",
        ),
        pytest.param(
            [
                gpu_pod("p", "z0-b0-r0-n0", 8, "chat", "chat-0"),
                *(gpu_pod(f"q{i}", "", 8, "big", "big-0") for i in range(2)),
            ],
            (0.333, "z0-b0-r0", (("chat-0", 8),)),
            id="two nodes of a rack are asked for",
        ),
        pytest.param(
            [
                gpu_pod("p", "z0-b0-r0-n0", 4, "chat", "chat-0"),
                gpu_pod("q", "z0-b0-r1-n0", 1, "code", "code-0"),
                *(gpu_pod(f"w{i}", "", 8, "big", "big-0") for i in range(2)),
            ],
            (1.0, "z0-b0-r1", (("code-0", 1),)),
            id="the one with least to move is named",
        ),
    ],
)
def test_fragmentation_is_what_the_largest_waiting_gang_cannot_use(
    pods: list[Pod], want: tuple[float, str, tuple[object, ...]]
) -> None:
    rack = layout(*pods).levels[-1]
    assert (rack.fragmentation, rack.to_free, rack.movers) == want


def test_who_would_have_to_move_is_said() -> None:
    console = Console(width=120, color_system=None)
    with console.capture() as said:
        waiting = (gpu_pod(f"q{i}", "", 8, "big", "big-0") for i in range(2))
        console.print(level_table(layout(gpu_pod("p", "z0-b0-r0-n0", 8, "chat", "chat-0"), *waiting), 120))
    meaning = "FRAGMENTED: share of the free gpu that gangs of 2 × 8 (ns/big-0 waits) in one domain cannot use"
    assert meaning in said.get()
    assert "to free rack z0-b0-r0: chat-0 (8) would have to move" in said.get()


def hue(colour: str) -> int:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return round(colorsys.rgb_to_hls(red, green, blue)[0] * 360)


def test_gangs_of_a_set_are_shades_of_one_hue() -> None:
    pods = [gpu_pod(f"p{i}", f"z0-b0-r0-n{i % 2}", 1, "chat", f"chat-0-decode-{i}") for i in range(6)]
    colours = colours_of(layout(*pods))
    assert len(set(colours.values())) == 6
    hues = {hue(one) for one in colours.values()}
    assert max(hues) - min(hues) <= 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11)), min_size=1, max_size=24))
def test_no_two_sets_on_one_node_are_alike(places: list[tuple[int, int]]) -> None:
    """As long as a node has fewer sets than there are hues."""
    pods = [
        gpu_pod(f"p{i}", f"z0-b0-r{node // 2}-n{node % 2}", 1, f"s{number}", f"s{number}-0")
        for i, (node, number) in enumerate(places)
    ]
    by_node: dict[int, set[int]] = {}
    for node, number in places:
        by_node.setdefault(node, set()).add(number)
    colours = colours_of(layout(*pods))
    together = {number for numbers in by_node.values() for number in numbers}
    assert len(together) <= len(HUES)
    for numbers in by_node.values():
        assert len({colours[f"s{number}-0"] for number in numbers}) == len(numbers)


def test_terminal_and_drawing_have_the_same_colours() -> None:
    one = layout(gpu_pod("p", "z0-b0-r0-n0", 8, "chat", "chat-0"))
    colour = colours_of(one)["chat-0"]
    assert f'fill="{colour}"' in svg_of(one)
    assert any(colour in str(span.style) for line in domain_lines(one, 120, nodes=True) for span in line.spans)
