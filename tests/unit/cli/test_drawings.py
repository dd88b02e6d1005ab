"""Trees, layouts and drawings from given objects: counts, reasons, bars."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from rich.console import Console
from rich.text import Text
from tests.support import objects

from grove.answers.tree import picture_of
from grove.api import labels
from grove.api.core import Node, Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.topology import ClusterTopologyBinding
from grove.diagnosis.seen import Seen
from grove.diagnosis.tree import State, tree_of
from grove.diagnosis.verdict import judge
from grove.diagnosis.words import counted
from grove.show.drawing import svg_of, svg_of_text
from grove.show.layout import layout_of
from grove.show.paint import domain_lines, growth, racks
from grove.sim.topology import LEVELS, Topology

NOW = datetime(2026, 1, 1, tzinfo=UTC)

BINDING = msgspec.convert(
    {"metadata": {"name": "t"}, "spec": {"levels": [{"domain": d, "key": k} for d, k in LEVELS]}},
    ClusterTopologyBinding,
)


def nodes(ready: bool = True, **shape: int) -> list[Node]:
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    made = Topology(**shape).objects()
    return [msgspec.convert({**one, "status": {**one["status"], "conditions": conditions}}, Node) for one in made]


def gpu_pod(name: str, *, node: str = "", ready: bool = False, gang: str = "x-0", gpus: int = 8, **parts: Any) -> Pod:
    status: dict[str, object] = {"phase": "Running" if ready else "Pending"}
    if ready:
        status["conditions"] = objects.conditions(Ready="True")
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": gpus}}}
    spec: dict[str, object] = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    marks = {labels.POD_GANG: gang, labels.POD_CLIQUE: "x-0-a", labels.PART_OF: "x"}
    meta = {"name": name, "namespace": "ns", "uid": name, "labels": marks, **parts.get("meta", {})}
    return objects.pod(spec=spec | parts.get("spec", {}), status=status | parts.get("status", {}), **meta)


def seen(
    pods: list[Pod], *, replicas: int, gang: dict[str, object] | None = None, fleet: list[Node] | None = None
) -> Seen:
    mark = {labels.PART_OF: "x", labels.REPLICA_INDEX: "0", labels.POD_GANG: "x-0"}
    return Seen(
        sets=[msgspec.convert({"metadata": {"name": "x", "namespace": "ns"}, "spec": {"replicas": 1}}, PodCliqueSet)],
        cliques=[
            msgspec.convert(
                {
                    "metadata": {"name": "x-0-a", "namespace": "ns", "labels": mark},
                    "spec": {"replicas": replicas, "startsAfter": ["x-0-b"]},
                    "status": {"updatedReplicas": replicas},
                },
                PodClique,
            )
        ],
        gangs=[
            msgspec.convert(
                {"metadata": {"name": "x-0", "namespace": "ns", "labels": {labels.PART_OF: "x"}}, "status": gang or {}},
                PodGang,
            )
        ],
        pods=pods,
        nodes=fleet if fleet is not None else nodes(racks=2, nodes=2),
        bindings=[BINDING],
    )


REFUSED = {
    "conditions": [
        {"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "no rack has capacity"}
    ]
}
LONG = {
    "conditions": [
        {
            "type": "Scheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no rack has capacity for ns/x-0 (2 pods); rack z0-b0-r0 comes closest",
        }
    ]
}
PLACED = {"placementScore": 0.75, "conditions": [{"type": "Scheduled", "status": "True"}]}
HELD = {"schedulingGates": [{"name": labels.POD_GANG_GATE}]}
WAITS = {"initContainerStatuses": [{"name": "grove-initc", "state": {"running": {}}}]}
CRASHES = {
    "containerStatuses": [{"name": "c", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
}


NO_MODEL = {
    "containerStatuses": [
        {
            "name": "c",
            "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {
                "terminated": {"exitCode": 1, "reason": "Error", "message": "loading\nno file /models/a.gguf\n"}
            },
        }
    ]
}
OUT_OF_MEMORY = {
    "containerStatuses": [
        {
            "name": "c",
            "restartCount": 1,
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
        }
    ]
}
NO_IMAGE = {
    "containerStatuses": [
        {
            "name": "c",
            "state": {
                "waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nowhere/engine:1"'}
            },
        }
    ]
}


@pytest.mark.parametrize(
    ("pods", "gang", "want"),
    [
        pytest.param([gpu_pod("p", node="z0-b0-r0-n0", ready=True)], None, (State.READY, ""), id="all is well"),
        pytest.param([], None, (State.MISSING, "1 of 1 pod does not exist yet"), id="no pod"),
        pytest.param(
            [gpu_pod("p", spec=HELD)], None, (State.GATED, "waits until all pods of its gang exist"), id="gated"
        ),
        pytest.param([gpu_pod("p")], REFUSED, (State.PENDING, "no rack has capacity"), id="the gang's own reason"),
        pytest.param([gpu_pod("p")], None, (State.PENDING, "no node yet"), id="nobody has said anything"),
        pytest.param(
            [gpu_pod("p", node="z0-b0-r0-n0", status=WAITS)],
            None,
            (State.STARTING, "starts after x-0-b"),
            id="start order",
        ),
        pytest.param([gpu_pod("p", node="z0-b0-r0-n0")], None, (State.STARTING, "starting"), id="bound"),
        pytest.param(
            [gpu_pod("p", node="z0-b0-r0-n0", status=CRASHES)],
            None,
            (State.FAILED, "c: CrashLoopBackOff, 3 restarts"),
            id="crashes",
        ),
        pytest.param(
            [gpu_pod("p", node="z0-b0-r0-n0", status=NO_MODEL)],
            None,
            (State.FAILED, "c: CrashLoopBackOff, ended with exit code 1, 1 restart: no file /models/a.gguf"),
            id="it says why it ended",
        ),
        pytest.param(
            [gpu_pod("p", node="z0-b0-r0-n0", status=OUT_OF_MEMORY)],
            None,
            (State.FAILED, "c: ended with exit code 137 and is not ready since, 1 restart: OOMKilled"),
            id="it had too little memory",
        ),
        pytest.param(
            [gpu_pod("p", node="z0-b0-r0-n0", status=NO_IMAGE)],
            None,
            (State.FAILED, 'c: ImagePullBackOff: Back-off pulling image "nowhere/engine:1"'),
            id="its image is not there",
        ),
        pytest.param([gpu_pod("p", node="gone")], None, (State.FAILED, "node gone is gone"), id="its node is gone"),
        pytest.param(
            [gpu_pod("p", status={"phase": "Failed", "reason": "Evicted"})],
            None,
            (State.FAILED, "ended: Evicted"),
            id="it ended",
        ),
        pytest.param(
            [gpu_pod("q", node="z0-b0-r0-n0", ready=True, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            None,
            (State.MISSING, "1 of 1 pod does not exist yet"),
            id="one that leaves does not count",
        ),
    ],
)
def test_the_worst_pod_gives_the_set_its_reason(pods, gang, want):
    grown = tree_of(seen(pods, replicas=1, gang=gang), seen(pods, replicas=1).sets[0])
    assert (grown.state, grown.why) == want


def test_counts_add_up_and_the_common_domain_is_the_narrowest():
    pods = [gpu_pod("p", node="z0-b0-r0-n0", ready=True), gpu_pod("q", node="z0-b0-r1-n0")]
    world = seen(pods, replicas=3, gang={"placementScore": 0.5})
    grown = tree_of(world, world.sets[0])
    assert (grown.count.wanted, grown.count.ready, grown.count.scheduled) == (3, 1, 2)
    replica = grown.children[0]
    assert (replica.domains, replica.gang, replica.score) == (("z0-b0",), "x-0", 0.5)
    assert [line.plain for line in growth(grown)] == [
        "x  1 of 3 pods ready",
        "└─ replica 0  x-0 · z0-b0 · 0.50",
        "   └─ a ●◐·",
    ]


def test_a_layout_counts_what_pods_take_and_only_open_nodes_are_free():
    fleet = nodes(blocks=2, racks=1, nodes=2)
    silent = msgspec.structs.replace(fleet[3], status=msgspec.structs.replace(fleet[3].status, conditions=()))
    world = seen([gpu_pod("p", node="z0-b0-r0-n0", gpus=4, ready=True)], replicas=1, fleet=[*fleet[:3], silent])
    layout = layout_of(world)
    assert (layout.root.used, layout.root.total, layout.root.free, layout.root.whole) == (4, 32, 20, 2)
    assert [(level.name, level.largest_free, level.best, level.fragmentation) for level in layout.levels] == [
        ("zone", 20, "z0", 0.0),
        ("block", 12, "z0-b0", 0.0),
        ("rack", 12, "z0-b0-r0", 0.0),
    ]
    assert [line.plain for line in domain_lines(layout, 80, nodes=True)] == [
        "cluster                  ██░░░░░░░░░░░░░░ 4/32 nvidia.com/gpu  4 nodes, 2 unused",
        "└─ zone z0               ██░░░░░░░░░░░░░░ 4/32  4 nodes, 2 unused",
        "   ├─ block z0-b0        ████░░░░░░░░░░░░ 4/16  2 nodes, 1 unused",
        "   │  └─ rack z0-b0-r0   ████░░░░░░░░░░░░ 4/16  2 nodes, 1 unused",
        "   │     ├─ z0-b0-r0-n0  ████████░░░░░░░░ 4/8  x-0 ×4",
        "   │     └─ z0-b0-r0-n1  ░░░░░░░░░░░░░░░░ 0/8",
        "   └─ block z0-b1        ░░░░░░░░░░░░░░░░ 0/16  2 nodes, 1 unused",
        "      └─ rack z0-b1-r0   ░░░░░░░░░░░░░░░░ 0/16  2 nodes, 1 unused",
        "         ├─ z0-b1-r0-n0  ░░░░░░░░░░░░░░░░ 0/8",
        "         └─ z0-b1-r0-n1  ░░░░░░░░░░░░░░░░ 0/8  does not answer",
    ]


def test_racks_are_one_line_a_block():
    world = seen([gpu_pod("p", node="z0-b0-r0-n0", ready=True), gpu_pod("q", node="z0-b0-r1-n1", gpus=4)], replicas=2)
    assert [line.plain.rstrip() for line in racks(layout_of(world), 80)] == [
        "z0-b0      r0 █·   8/16  r1 ·▄   4/16",
    ]


def test_racks_stand_under_each_other_though_one_has_lost_a_node():
    fleet = nodes(blocks=2, racks=2, nodes=2)[1:]
    assert [line.plain.rstrip() for line in racks(layout_of(seen([], replicas=0, fleet=fleet)), 80)] == [
        "z0-b0      r0 ·    0/8   r1 ··   0/16",
        "z0-b1      r0 ··   0/16  r1 ··   0/16",
    ]


def test_nodes_without_a_label_are_counted_apart():
    fleet = nodes(nodes=2)
    bare = msgspec.structs.replace(fleet[1], metadata=msgspec.structs.replace(fleet[1].metadata, labels={}))
    layout = layout_of(seen([], replicas=0, fleet=[fleet[0], bare]))
    assert [(level.name, level.domains, level.unlabelled) for level in layout.levels] == [
        ("zone", 1, 1),
        ("block", 1, 1),
        ("rack", 1, 1),
    ]


def test_a_drawing_is_xml_with_a_square_for_every_node():
    world = seen([gpu_pod("p", node="z0-b0-r0-n0", ready=True)], replicas=1, fleet=nodes(zones=2, racks=2, nodes=3))
    root = ElementTree.fromstring(svg_of(layout_of(world)))
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 12
    assert titles[0] == "z0-b0-r0-n0: 8/8\nx-0 × 8"


@pytest.mark.parametrize(
    ("shape", "most"),
    [
        pytest.param({"zones": 2, "blocks": 2, "racks": 4, "nodes": 4}, 1000, id="64 nodes"),
        pytest.param({"zones": 1, "blocks": 1, "racks": 60, "nodes": 4}, 1200, id="many racks in a block"),
        pytest.param({"zones": 4, "blocks": 16, "racks": 4, "nodes": 4}, 2600, id="1,024 nodes"),
    ],
)
def test_a_drawing_of_any_cluster_fits_a_page_and_its_racks_are_alike(shape: dict[str, int], most: int):
    root = ElementTree.fromstring(svg_of(layout_of(seen([], replicas=0, fleet=nodes(**shape)))))
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    assert width <= most
    assert height <= most
    frames = [one.attrib for one in root if one.attrib.get("stroke") == "#bbbbbb" and "235" in one.attrib["fill"]]
    assert len(frames) == shape["zones"] * shape["blocks"] * shape["racks"]
    assert len({(one["width"], one["height"]) for one in frames}) == 1
    assert max(int(one["x"]) + int(one["width"]) for one in frames) <= width


def test_pictures_fit_the_width():
    world = seen([gpu_pod(f"p{i}", node="z0-b0-r0-n0") for i in range(9)], replicas=9, gang=REFUSED)
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    for line in domain_lines(layout_of(world), 80, nodes=True):
        console.print(line)
    assert max(map(len, out.getvalue().splitlines())) <= 80


def _printed(picture: Any, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(picture)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_what_is_wrong_stands_shortly_above_the_tree_with_the_next_step():
    world = seen([gpu_pod(f"p{i}") for i in range(2)], replicas=2, gang=LONG)
    judgement = replace(judge(world, world.sets[0], NOW), next="add a node to the rack")
    narrow = _printed(picture_of(judgement).paint(60), 60)
    above = narrow[: next(i for i, line in enumerate(narrow) if line.startswith("NAME"))]
    said = f"x: waiting · gang: {judgement.brief} next: add a node to the rack"
    assert " ".join(line.strip() for line in above) == said
    assert picture_of(judgement).data["next"] == "add a node to the rack"
    assert max(map(len, narrow)) <= 60


def test_above_the_tree_of_a_set_that_runs_stands_nothing():
    world = seen([gpu_pod("p0", node="z0-b0-r0-n0", ready=True)], replicas=1, gang=PLACED)
    judgement = judge(world, world.sets[0], NOW)
    assert _printed(picture_of(judgement).paint(80), 80)[0].startswith("NAME")
    assert "next" not in picture_of(judgement).data


def test_only_the_stem_of_a_line_is_dim():
    world = seen([gpu_pod("p0", node="z0-b0-r0-n0", ready=True)], replicas=1)
    for line in growth(tree_of(world, world.sets[0])):
        assert str(line.style) == ""
    first, *_ = domain_lines(layout_of(world), 80, nodes=False)
    assert str(first.style) == ""


def test_the_score_goes_before_a_line_is_cut():
    world = seen([gpu_pod("p0", node="z0-b0-r0-n0", ready=True)], replicas=1, gang=PLACED)
    wide, narrow = (list(growth(tree_of(world, world.sets[0]), width))[1].plain for width in (80, 28))
    assert wide == "└─ replica 0  x-0 · z0-b0-r0 · 0.75"
    assert narrow == "└─ replica 0  x-0 · z0-b0-r0"


def test_lines_become_a_drawing_letter_under_letter():
    line = Text("ab").append("  ").append("cd", style="bold red")
    root = ElementTree.fromstring(svg_of_text([line, Text("<&>")]))
    texts = [(one.text, one.attrib["fill"]) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [(text.strip(), ink) for text, ink in texts if text] == [
        ("ab", "#222222"),
        ("cd", "#c62828"),
        ("<&>", "#222222"),
    ]


@pytest.mark.parametrize(
    ("names", "want"),
    [
        pytest.param(["a-10", "a-2"], ["a-2", "a-10"], id="numbers count"),
        pytest.param(["a-0-g-1", "a-0"], ["a-0", "a-0-g-1"], id="a base gang comes first"),
        pytest.param(["b", "a1"], ["a1", "b"], id="words as words"),
    ],
)
def test_counted(names, want):
    assert sorted(names, key=counted) == want


def test_on_a_narrow_terminal_pods_are_called_by_their_ends_and_nothing_is_cut():
    name = "x-0-a-role-with-a-name-that-is-rather-long-abcde"
    world = seen([gpu_pod(name, node="z0-b0-r0-n0", ready=True)], replicas=1)
    picture = picture_of(judge(world, world.sets[0], NOW))
    wide, narrow = (_printed(picture.paint(width), width) for width in (100, 60))
    assert wide[-1].split() == ["└─", "●", name, "z0-b0-r0-n0"]
    assert narrow[-1].split() == ["└─", "●", "…abcde", "z0-b0-r0-n0"]
    assert narrow[0].split() == wide[0].split()
