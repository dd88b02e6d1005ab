"""Steps that the stories here do not use, and steps that cannot be done: a story says which one failed and why."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from grove.api.core import Pod
from grove.demo.performance import perform
from grove.demo.scenario import load_scenario
from grove.demo.stage import PLAIN_WIDTH, Plain
from grove.demo.story import StoryFailed
from grove.plan.world import World, shaped
from grove.sim.loop import run

SMALL = Path(__file__).parents[2] / "samples/small.yaml"
NODE = shaped(1)[0]["metadata"]["name"]


def played(folder: Path, steps: str, nodes: int = 1) -> tuple[dict[str, str], str]:
    """Where each pod is at the end, and what the story said."""
    (folder / "story.yaml").write_text(f"title: t\nsteps:\n- apply: {SMALL}\n{steps}")
    told = io.StringIO()
    console = Console(file=told, width=PLAIN_WIDTH, color_system=None, highlight=False)
    worlds: list[World] = []
    run(perform(load_scenario(folder / "story.yaml"), Plain(console), console, nodes=nodes, attend=worlds.append))
    return {pod.metadata.name: pod.spec.node_name for pod in worlds[0].all(Pod)}, told.getvalue()


def test_what_waits_for_a_cordoned_node_comes_when_it_is_open_again(tmp_path: Path) -> None:
    steps = (
        f"- cordon: {NODE}\n- scale: {{set: small, replicas: 0}}\n- wait: small\n- scale: {{set: small, replicas: 1}}\n"
    )
    pods, told = played(tmp_path, f"{steps}- after: 10s\n- explain: small\n- uncordon: {NODE}\n- wait: small\n")
    assert set(pods.values()) == {NODE}
    assert f"uncordon {NODE}" in told


def test_nodes_that_join_take_what_had_no_capacity(tmp_path: Path) -> None:
    steps = "- wait: small\n- scale: {set: small, clique: server, replicas: 4}\n"
    pods, told = played(tmp_path, f"{steps}- addNodes: {{count: 1, gpus: 8}}\n- wait: small\n")
    assert (len(pods), len(set(pods.values()))) == (4, 2)
    assert "joining the cluster: 1 node with 8 GPUs each" in told


def test_pods_that_drain_are_reported_before_they_leave(tmp_path: Path) -> None:
    annotation = 'change: {metadata: {annotations: {grove.io/drain-seconds: "60"}}}'
    steps = (
        f"- patch: {{set: small, {annotation}}}\n- wait: small\n- scale: {{set: small, replicas: 0}}\n- after: 90s\n"
    )
    pods, told = played(tmp_path, steps)
    assert pods == {}
    told = " ".join(told.split())
    assert "2 pods of small-0-server drain for 60 s" in told
    assert told.index("drain for 60 s") < told.index("2 pods of small-0-server leave")


@pytest.mark.parametrize(
    ("step", "want"),
    [
        pytest.param("wait: {set: other, patience: 1s}", "there is no such set", id="to wait for nobody"),
        pytest.param(
            "scale: {set: small, clique: nobody, replicas: 2}", "no PodClique small-0-nobody to scale", id="scale"
        ),
        pytest.param("failPod: other", "no ready pod of other to fail", id="to fail nobody's pod"),
        pytest.param("drain: {runs: other}", "no pod of other runs on a node", id="to drain nobody's node"),
        pytest.param("update: {set: other, image: 'x:2'}", "there is no PodCliqueSet other", id="to update nobody"),
        pytest.param(
            "patch: {set: small, change: {spec: {replicas: -1}}}", "the change of small is refused", id="a bad change"
        ),
    ],
)
def test_a_step_that_cannot_be_done_ends_the_story(tmp_path: Path, step: str, want: str) -> None:
    with pytest.raises(StoryFailed) as failed:
        played(tmp_path, f"- wait: small\n- {step}\n")
    assert want in str(failed.value)
