"""The demo tells the truth: every claim of its story is compared with what was written to the cluster meanwhile."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from tests.support.demo_story import LEVELS, ROOM, SAMPLES, TENTH, Witness

from grove.answers.simulate import outcome_answer
from grove.api import labels
from grove.demo.pace import run_paced
from grove.demo.performance import perform
from grove.demo.scenario import Scenario, load_manifests, load_scenario, read_scenario
from grove.demo.simulation import BadCluster, Ground, Outcome, load_ground, simulate
from grove.demo.stage import PLAIN_WIDTH, Plain
from grove.demo.story import StoryFailed
from grove.demo.summary import Summary
from grove.plan.world import shaped
from grove.sim.loop import run

TOUR = load_scenario(ROOM / "tour.yaml")
LINE = re.compile(r"^\[ *([\d.]+) s\] (.*)$")


@pytest.fixture(scope="module", params=[1, 2])
def story(request: pytest.FixtureRequest) -> tuple[str, Witness, Summary]:
    seed: int = request.param
    out, witness = io.StringIO(), Witness()
    console = Console(file=out, width=PLAIN_WIDTH, color_system=None, highlight=False)
    summary = run_paced(perform(TOUR, Plain(console), console, seed=seed, attend=witness.attend), seed=seed)
    return out.getvalue(), witness, summary


def lines(text: str) -> list[tuple[float, str]]:
    return [(float(found[1]), found[2]) for line in text.splitlines() if (found := LINE.match(line))]


def chapter(text: str, title: str) -> str:
    return text.split(f"== {title}\n")[1].split("\n== ")[0]


def test_every_chapter_is_played(story: Any) -> None:
    titles = re.findall(r"^== (.*)$", story[0], re.MULTILINE)
    assert titles == [
        "One object, a whole system",
        "Scale out",
        "A gang that does not fit",
        "A node dies",
        "A rolling update",
        "Two teams share a fleet",
    ]


def test_a_team_that_borrowed_gets_smaller_when_the_owner_comes_and_grows_back(story: Any) -> None:
    text = chapter(story[0], "Two teams share a fleet")
    told = re.findall(r"queue (red|blue) uses (\d+) GPUs", text)
    assert told == [("blue", "0"), ("red", "32"), ("blue", "16"), ("red", "16")]
    evicted = re.findall(r"gang (\S+) is evicted for default/blue-0, whose queue takes back its share", text)
    assert len(evicted) == 2
    assert all(name.startswith("red-0-instance-") for name in evicted), "its base stays"
    after = text[text.rindex("queue red uses") :]
    for name in evicted:
        assert f"gang {name} is placed whole" in after


def test_a_gang_that_is_reported_to_be_placed_has_its_pods_bound_where_it_says(story: Any) -> None:
    text, witness, _ = story
    claims = [
        (at, *found.groups())
        for at, line in lines(text)
        if (found := re.match(r"gang (\S+) is placed whole: (\d+) pods? on (\d+) nodes? in (\w+) (\S+),", line))
    ]
    assert len(claims) >= 5
    for at, gang, pods, nodes, level, name in claims:
        mine = [
            pod for when, pod in witness.bound if pod.metadata.labels[labels.POD_GANG] == gang and when <= at + TENTH
        ]
        # Pods above the minimum may follow within the same tenth of a second, hence any run of that many.
        runs = [mine[end - int(pods) : end] for end in range(int(pods), len(mine) + 1)]
        assert any(
            len({pod.metadata.name for pod in run}) == int(pods)
            and len({pod.spec.node_name for pod in run}) == int(nodes)
            and {witness.domain(pod, level) for pod in run} == {name}
            for run in runs
        )


def test_a_clique_that_starts_after_another_is_ready_later(story: Any) -> None:
    text, witness, _ = story
    first = chapter(text, "One object, a whole system")
    orders = re.findall(r"(\S+) is ready, \d+/\d+ \(it starts after (\S+)\)", first)
    assert len(orders) == 5
    for clique, parent in orders:
        assert witness.first_ready(parent) < witness.first_ready(clique)


def test_scaling_out_adds_two_gangs_in_one_rack_each(story: Any) -> None:
    text, witness, _ = story
    part = chapter(text, "Scale out")
    for gang in ("chat-0-prefill-1", "chat-0-prefill-2"):
        assert f"gang {gang} is running" in part
        pods = [pod for _, pod in witness.bound if pod.metadata.labels[labels.POD_GANG] == gang][:2]
        assert len({witness.domain(pod, "rack") for pod in pods}) == 1


def test_the_gang_that_does_not_fit_has_no_pod_bound_before_the_change_that_helps(story: Any) -> None:
    text, witness, _ = story
    part = chapter(text, "A gang that does not fit")
    assert "no rack has capacity for default/wide-0 (5 pods)" in part
    assert "wide-0-trainer 4/5 pods" in part
    assert "any one of these would make it fit:" in part
    helped = next(
        at for at, line in lines(part) if line == "so be it: required: block instead of required: rack for wide-0"
    )
    first_bound = min(at for at, pod in witness.bound if pod.metadata.labels[labels.PART_OF] == "wide")
    assert first_bound > helped - TENTH
    assert "gang wide-0 is placed whole: 5 pods on 5 nodes in block" in part
    assert "wide: 1 of 1 replica available" in part


def test_the_lost_node_s_pod_is_replaced_in_the_same_rack_after_five_minutes(story: Any) -> None:
    text, witness, _ = story
    part = chapter(text, "A node dies")
    node = re.search(r"node (\S+) does not answer any more", part)
    assert node is not None
    rack = witness.nodes[node[1]].metadata.labels[LEVELS["rack"]]
    lost = [(at, pod) for at, pod in witness.left if pod.spec.node_name == node[1]]
    assert lost
    said = next(at for at, line in lines(part) if "does not answer" in line)
    for at, pod in lost:
        assert 295 < at - said < 305
        clique = pod.metadata.labels[labels.POD_CLIQUE]
        if clique == "chat-0-decode-0-decode-worker":
            new = [
                one for when, one in witness.bound if when >= at and one.metadata.labels[labels.POD_CLIQUE] == clique
            ]
            assert witness.domain(new[0], "rack") == rack
            assert new[0].spec.node_name != node[1]
    assert "chat: 1 of 1 replica available" in part


def test_the_update_replaces_decode_and_touches_nothing_else(story: Any) -> None:
    text, witness, _ = story
    part = chapter(text, "A rolling update")
    begins = next(at for at, line in lines(part) if line == "the update of chat begins")
    ends = next(at for at, line in lines(chapter(text, "Two teams share a fleet")))
    touched = {pod.metadata.labels[labels.POD_CLIQUE] for at, pod in witness.left if begins - TENTH <= at < ends}
    assert touched == {"chat-0-decode-0-decode-leader", "chat-0-decode-0-decode-worker"}
    assert "lmsysorg/sglang:v0.5.24" in witness.images
    assert "the update of chat is complete" in part


def test_the_summary_counts_what_runs(story: Any) -> None:
    text, _, summary = story
    assert [gang.name for gang in summary.gangs] == [
        "chat-0",
        "chat-0-prefill-0",
        "chat-0-prefill-1",
        "chat-0-prefill-2",
    ]
    assert (summary.sets, summary.pods, summary.ready) == (1, 13, 13)
    assert (summary.accelerators_used, summary.accelerators) == (88, 504)
    assert all(gang.score == 1.0 and gang.phase == "Running" for gang in summary.gangs)
    assert "1 set, 4 gangs, 13 of 13 pods ready, 88 of 504 GPUs in use" in text


def play(plot: Scenario, seed: int = 1, nodes: int | None = None) -> tuple[str, Summary]:
    out = io.StringIO()
    console = Console(file=out, width=PLAIN_WIDTH, color_system=None, highlight=False)
    summary = run_paced(perform(plot, Plain(console), console, seed=seed, nodes=nodes), seed=seed)
    return out.getvalue(), summary


def test_the_same_seed_tells_the_same_story_and_another_one_another() -> None:
    assert play(TOUR, 3)[0] == play(TOUR, 3)[0]
    assert play(TOUR, 3)[0] != play(TOUR, 4)[0]


def test_the_demo_shows_the_published_sample() -> None:
    published = (SAMPLES / "disaggregated.yaml").read_text().splitlines(keepends=True)
    for_editors, *sample = published
    assert for_editors.startswith("# yaml-language-server")
    assert (ROOM / "chat.yaml").read_text() == "".join(sample)


def scenario(steps: str) -> Scenario:
    return read_scenario(yaml.safe_load(steps), lambda name: yaml.safe_load((SAMPLES / name).read_text()))


def test_a_cluster_too_small_is_reported_and_ends_the_story() -> None:
    with pytest.raises(StoryFailed, match=r"chat is not all there after 60 s: .*capacity for"):
        play(scenario("steps: [{apply: disaggregated.yaml}, {wait: {set: chat, patience: 1m}}]"), nodes=4)


@pytest.mark.parametrize(
    ("nodes", "fits"),
    [
        pytest.param(15, False, id="fewer than the tour needs"),
        pytest.param(16, True, id="just enough"),
        pytest.param(17, True, id="racks of different size"),
    ],
)
def test_the_tour_plays_on_small_clusters_or_says_how_many_nodes_it_needs(nodes: int, fits: bool) -> None:
    if fits:
        assert play(TOUR, nodes=nodes)[1].ready == 13
    else:
        with pytest.raises(StoryFailed, match=r"^this story needs 16 nodes or more, not 15$"):
            play(TOUR, nodes=nodes)


def test_a_drained_node_s_gang_comes_back_elsewhere() -> None:
    text, summary = play(
        scenario("steps: [{apply: small.yaml}, {wait: small}, {drain: {runs: small-0}}, {after: 5s}, {wait: small}]")
    )
    assert "is cordoned" in text
    assert summary.ready == 2


def test_an_unknown_node_ends_the_story() -> None:
    with pytest.raises(StoryFailed, match="there is no node 'nowhere'"):
        play(scenario("steps: [{failNode: nowhere}]"))


def simulated(path: Path) -> Outcome:
    return run(simulate(Ground(tuple(shaped(64))), load_manifests(path), None, seed=1, patience_s=600), seed=1)


SETS = [path for path in sorted(SAMPLES.glob("*.yaml")) if "kind: PodCliqueSet" in path.read_text()]


@pytest.mark.parametrize("sample", SETS, ids=lambda path: path.stem)
def test_every_sample_comes_up_whole(sample: Path) -> None:
    outcome = simulated(sample)
    assert outcome.failed == ""
    assert outcome.is_whole
    assert outcome.summary.ready == outcome.summary.pods > 0
    assert all(gang.phase == "Running" and gang.score == 1.0 for gang in outcome.summary.gangs)
    assert len(outcome.placement) == outcome.summary.pods


def test_the_sample_binding_is_admitted() -> None:
    [binding] = load_manifests(SAMPLES / "cluster-topology.yaml")
    manifests = [binding, *load_manifests(SAMPLES / "small.yaml")]
    assert run(simulate(Ground(tuple(shaped(4))), manifests, None, seed=1, patience_s=60), seed=1).is_whole


@pytest.mark.parametrize("file", sorted((SAMPLES / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sample_scenario_ends_well(file: Path) -> None:
    scenario = load_scenario(file)
    text, summary = play(scenario)
    assert summary.ready == summary.pods > 0
    chapters = [step.args["title"] for step in scenario.steps if step.verb == "chapter"]
    assert re.findall(r"^== (.*)$", text, re.MULTILINE)[1:] == chapters[1:] != []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("{zones: 2, colour: red}", "unknown field colour", id="unknown field"),
        pytest.param("{racks: none}", "racks must be a whole number above 0", id="no number"),
        pytest.param("[1, 2]", "neither a shape nor Kubernetes objects", id="a list"),
        pytest.param("{kind: Pod, metadata: {name: x}}", "holds no nodes", id="no nodes"),
        pytest.param("a: [", "not YAML", id="broken"),
    ],
)
def test_a_bad_cluster_file_is_refused(text: str, want: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(BadCluster, match=want):
        load_ground(file)


def test_a_cluster_of_given_nodes_is_used_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(shaped(2, gpus=4)))
    outcome = run(
        simulate(load_ground(file), load_manifests(SAMPLES / "small.yaml"), None, seed=1, patience_s=60), seed=1
    )
    assert outcome.summary.accelerators == 8
    assert set(outcome.placement.values()) == {"z0-b0-r0-n0", "z0-b0-r0-n1"}


def test_the_sample_cluster_is_a_shape() -> None:
    assert len(load_ground(SAMPLES / "clusters" / "small.yaml").nodes) == 16


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(64, (2, 4, 16, {4}), id="the demo's own"),
        pytest.param(1, (1, 1, 1, {1}), id="one"),
        pytest.param(6, (1, 1, 2, {3}), id="one rack would be too few"),
        pytest.param(33, (1, 2, 9, {3, 4}), id="not a multiple of four"),
        pytest.param(1000, (31, 62, 250, {4}), id="many"),
    ],
)
def test_made_up_clusters_are_divided_evenly(nodes: int, want: tuple[int, int, int, set[int]]) -> None:
    made = [node["metadata"]["labels"] for node in shaped(nodes)]
    assert len(made) == nodes
    assert len({marks["kubernetes.io/hostname"] for marks in made}) == nodes
    zones, blocks, racks = ({marks[LEVELS[level]] for marks in made} for level in ("zone", "block", "rack"))
    sizes = {sum(marks[LEVELS["rack"]] == rack for marks in made) for rack in racks}
    assert (len(zones), len(blocks), len(racks), sizes) == want


def test_an_explain_step_is_in_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "events.yaml"
    file.write_text("steps:\n- scale: {set: small, replicas: 9}\n- explain: small\n")
    manifests = load_manifests(SAMPLES / "small.yaml")
    outcome = run(
        simulate(Ground(tuple(shaped(1, gpus=8))), manifests, load_scenario(file), seed=1, patience_s=60), seed=1
    )
    assert outcome.explained
    assert any("nvidia.com/gpu" in line for line in outcome.explained), outcome.explained
    assert list(outcome_answer(outcome).data["explained"]) == list(outcome.explained)


def test_the_timeline_says_once_that_a_gang_waits() -> None:
    manifests = load_manifests(SAMPLES / "disaggregated.yaml")
    outcome = run(simulate(Ground(tuple(shaped(1))), manifests, None, seed=1, patience_s=60), seed=1)
    waiting = [note.text for note in outcome.timeline if note.kind == "waiting"]
    assert any(text.startswith("gang chat-0-prefill-0 waits for its base PodGang ") for text in waiting), waiting
    assert not [text for text in waiting if "waits: waits" in text]
