"""The autoscaling scenario: more requests create instances, fewer requests remove them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from grove.api.core import HorizontalPodAutoscaler
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.demo.performance import perform
from grove.demo.scenario import BadScenario, Scenario, load_manifest, load_manifests, load_scenario, read_scenario
from grove.demo.simulation import Ground, simulate
from grove.demo.stage import Plain
from grove.demo.story import StoryFailed
from grove.plan.world import World, shaped
from grove.sim.loop import run

SAMPLES = Path(__file__).parents[2] / "samples"
WAVE = load_scenario(SAMPLES / "scenarios/wave.yaml")


def told(scenario: Scenario, seed: int = 1) -> tuple[str, list[World]]:
    """What the story says, and the world it was played in."""
    worlds: list[World] = []
    out = io.StringIO()
    console = Console(file=out, width=120)
    run(perform(scenario, Plain(console), console, seed=seed, attend=worlds.append), seed=seed)
    return out.getvalue(), worlds


def sizes(text: str, group: str) -> list[int]:
    """The sizes a group was given, in order."""
    found = re.findall(rf"{group} is scaled from (\d+) to (\d+)", text)
    return [int(found[0][0]), *(int(after) for _, after in found)] if found else []


def test_prefill_grows_with_the_queue_decode_with_its_cache_and_both_come_back() -> None:
    text, _ = told(WAVE)
    prefill, decode = sizes(text, "elastic-0-prefill"), sizes(text, "elastic-0-decode")
    assert prefill[0] == decode[0] == 1
    assert max(prefill) > 4, "a queue of requests is many units"
    assert max(decode) > 4
    assert prefill[-1] == decode[-1] == 1
    assert "elastic gets 40 requests a second" in text
    assert re.search(r"elastic-0-prefill is scaled .*: grove_requests_waiting is [\d.e+]+, the target 4", text)
    assert re.search(r"elastic-0-decode is scaled .*: grove_kv_cache_usage is [\d.]+, the target 0.7", text)
    assert "4 of 4 pods ready" in text


def test_every_new_instance_is_a_gang_and_none_is_left_half_placed() -> None:
    text, (world,) = told(WAVE)
    placed = len(re.findall(r"gang elastic-0-\w+-\d+ is placed whole", text))
    grown = sum(
        max(0, after - before)
        for group in ("elastic-0-prefill", "elastic-0-decode")
        for before, after in zip(sizes(text, group), sizes(text, group)[1:], strict=False)
    )
    assert placed == grown > 8
    assert [gang.metadata.name for gang in world.all(PodGang)] == ["elastic-0"]
    assert {one.metadata.name: one.spec.replicas for one in world.all(PodCliqueScalingGroup)} == {
        "elastic-0-prefill": 1,
        "elastic-0-decode": 1,
    }


def test_autoscalers_show_what_they_saw() -> None:
    _, (world,) = told(WAVE)
    (decode,) = (one for one in world.all(HorizontalPodAutoscaler) if one.metadata.name == "elastic-0-decode")
    (seen,) = decode.status.current_metrics or ()
    assert seen["object"]["metric"]["name"] == "grove_kv_cache_usage"
    assert (decode.status.conditions or ())[0].status == "True"


def test_the_same_seed_tells_the_same_story() -> None:
    assert told(WAVE, seed=5)[0] == told(WAVE, seed=5)[0]


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        pytest.param({"load": {"set": "x"}}, "load: needs requestsPerSecond", id="no number of requests"),
        pytest.param({"load": {"set": "x", "requestsPerSecond": 1, "rate": 2}}, "unknown field rate", id="a slip"),
        pytest.param({"load": "x"}, "must be a mapping", id="one word is not enough"),
    ],
)
def test_a_load_that_cannot_be_read_is_refused_with_its_step(step: dict[str, object], fault: str) -> None:
    with pytest.raises(BadScenario, match=fault):
        read_scenario({"steps": [step]}, lambda name: {})


def test_a_load_on_a_set_that_is_not_there_ends_the_story() -> None:
    story = read_scenario({"steps": [{"load": {"set": "nobody", "requestsPerSecond": 1}}]}, lambda name: {})
    with pytest.raises(StoryFailed, match="there is no PodCliqueSet nobody"):
        told(story)


def test_engines_may_be_slow_or_quick() -> None:
    slow = {"load": {"set": "elastic", "requestsPerSecond": 10, "serviceTime": "8s", "batch": 4}}
    quick = {"load": {"set": "elastic", "requestsPerSecond": 10, "serviceTime": "100ms", "batch": 32}}
    steps = [{"apply": "autoscaling.yaml"}, {"wait": "elastic"}]

    def manifest(name: str) -> dict[str, object]:
        return load_manifest(SAMPLES / name)

    def highest(load: dict[str, object]) -> int:
        text, _ = told(read_scenario({"steps": [*steps, load, {"after": "4m"}]}, manifest))
        return max(sizes(text, "elastic-0-prefill"), default=1)

    assert highest(quick) == 1
    assert highest(slow) == 8


def test_a_simulation_has_load_too_and_the_whole_system_grows_by_what_users_feel() -> None:
    """`grove simulate` with the sample's own autoscaler of the set: out when users wait, in when they do not, once."""
    rush: list[dict[str, object]] = [
        {"load": {"set": "elastic", "requestsPerSecond": 200}},
        {"after": "10m"},
        {"load": {"set": "elastic", "requestsPerSecond": 1}},
        {"after": "20m"},
    ]
    scenario = read_scenario({"steps": rush}, lambda name: {})
    manifests = load_manifests(SAMPLES / "autoscaling.yaml")
    outcome = run(simulate(Ground(tuple(shaped(64))), manifests, scenario, seed=1, patience_s=600), seed=1)
    assert outcome.is_whole
    told = "\n".join(note.text for note in outcome.timeline)
    assert re.findall(r"elastic is scaled from (\d) to (\d): grove_e2e_p95_seconds", told) == [("1", "2"), ("2", "1")]
