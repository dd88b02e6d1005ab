"""A scenario file is read whole: verbs, arguments, and every fault with the number of its step."""

from __future__ import annotations

import pytest
import yaml

from grove.demo.scenario import BadScenario, Step, load_manifests, load_scenario, read_scenario

MANIFEST = {"kind": "PodCliqueSet", "metadata": {"name": "x"}}


def read(text: str):
    return read_scenario(yaml.safe_load(text), lambda name: {**MANIFEST, "from": name})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("wait: chat", Step("wait", {"set": "chat"}), id="one word"),
        pytest.param("wait: {set: chat, patience: 5m}", Step("wait", {"set": "chat", "patience": "5m"}), id="more"),
        pytest.param("{chapter: One, text: Two}", Step("chapter", {"title": "One", "text": "Two"}), id="a chapter"),
        pytest.param("apply: a.yaml", Step("apply", {"object": {**MANIFEST, "from": "a.yaml"}}), id="a file"),
        pytest.param("apply: {kind: PodCliqueSet}", Step("apply", {"object": {"kind": "PodCliqueSet"}}), id="inline"),
        pytest.param("after: 1m30s", Step("after", {"seconds": 90.0}), id="a duration"),
        pytest.param("removeNode", Step("removeNode", {}), id="a verb alone"),
    ],
)
def test_steps(text, want):
    assert read(f"steps: [{text}]").steps == (want,)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("[]", "a scenario has a list `steps`", id="no mapping"),
        pytest.param("steps: {}", "a scenario has a list `steps`", id="no list"),
        pytest.param("steps: [{dance: chat}]", "step 1: must have exactly one verb", id="unknown verb"),
        pytest.param("steps: [{wait: a, delete: b}]", "step 1: must have exactly one verb", id="two verbs"),
        pytest.param("steps: [{wait: a}, {scale: {set: a}}]", "step 2: scale: needs replicas", id="missing argument"),
        pytest.param("steps: [{scale: {set: a, replicas: 1, by: 2}}]", "step 1: scale: unknown field by", id="extra"),
        pytest.param("steps: [{after: soon}]", "step 1: ", id="no duration"),
        pytest.param("{cluster: {nodes: 0}, steps: []}", "cluster.nodes: must be a whole number", id="no nodes"),
        pytest.param("{cluster: {racks: 2}, steps: []}", "cluster: unknown field racks", id="unknown cluster field"),
        pytest.param("{stepz: [], steps: []}", "unknown field stepz", id="a typo"),
    ],
)
def test_faults(text, want):
    with pytest.raises(BadScenario) as caught:
        read(text)
    assert want in str(caught.value)


def test_all_faults_are_reported_at_once():
    with pytest.raises(BadScenario, match=r"step 1: .*; step 3: wait: unknown field x"):
        read("steps: [{dance: a}, {wait: a}, {wait: {set: a, x: 1}}]")


def test_keys_that_yaml_takes_for_something_else_are_words(tmp_path):
    file = tmp_path / "m.yaml"
    file.write_text("{kind: A, metadata: {name: x, labels: {no: a, 1: b, since: 2026-01-01}}}")
    [obj] = load_manifests(file)
    assert obj["metadata"]["labels"] == {"false": "a", "1": "b", "since": "2026-01-01"}


def test_a_manifest_that_is_missing_is_the_step_s_fault(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("steps: [{apply: nothing.yaml}]")
    with pytest.raises(BadScenario, match=r"step 1: .*nothing\.yaml"):
        load_scenario(file)
