"""The scheduler's configuration file: defaults, durations, and every way to get it wrong."""

from __future__ import annotations

import pytest

from grove.scheduler.model.config import InvalidConfig, gang_timeout_s, load_configuration, parse_gates


def test_an_empty_file_is_all_defaults() -> None:
    config = load_configuration("")
    assert (config.scheduler_name, config.server.port, config.gang_timeout) == ("grove-scheduler", 8080, 600.0)
    assert config.takes_gangs
    assert not config.leader_election.enabled


def test_what_is_given_is_taken() -> None:
    config = load_configuration(
        """
        apiVersion: scheduler.config.grove.io/v1alpha1
        kind: SchedulerConfiguration
        holdAfter: 1m30s
        backoff: {initial: 10ms, max: 1s}
        leaderElection: {enabled: true, leaseDuration: 30s}
        featureGates: {GroveIntegration: false}
        nodePolicy: spread
        """
    )
    assert (config.hold_after, config.backoff.initial, config.leader_election.lease_duration) == (90.0, 0.01, 30.0)
    assert not config.takes_gangs
    assert config.node_policy == "spread"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("holdAfter: 2", "duration", id="a number is not a duration"),
        pytest.param("holdAfter: soon", "not a duration", id="a word is not a duration"),
        pytest.param("server: {port: high}", "server.port", id="the path of a wrong type"),
        pytest.param("server: {port: 70000}", "server.port", id="no such port"),
        pytest.param("bindConcurency: 3", "bindConcurency", id="a misspelt field"),
        pytest.param("repack: {restartsPerHour: 0}", "repack.restartsPerHour: must be at least 1", id="no restarts"),
        pytest.param("bindConcurrency: 0", "bindConcurrency: must be at least 1", id="nobody binds"),
        pytest.param("kind: OperatorConfiguration", "kind: must be SchedulerConfiguration", id="another kind"),
        pytest.param("backoff: {initial: 5s, max: 1s}", "backoff", id="back-off upside down"),
        pytest.param("gangTimeout: 10ms", "gangTimeout", id="a deadline nobody can meet"),
        pytest.param("featureGates: {Magic: true}", "there is no gate Magic", id="an unknown gate"),
        pytest.param("nodePolicy: scatter", "scatter", id="an unknown policy"),
        pytest.param("leaderElection: {enabled: true, renewDeadline: 20s}", "leaderElection", id="impossible election"),
        pytest.param("a: [", "not YAML", id="not YAML"),
        pytest.param("- a", "object", id="a list"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        load_configuration(text)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidConfig, match=r"kind: .*; bindConcurrency: .*; patience: "):
        load_configuration("{kind: X, bindConcurrency: -1, patience: -1s}")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", {}, id="none"),
        pytest.param("GroveIntegration=false", {"GroveIntegration": False}, id="one"),
        pytest.param("A=true, B=False", {"A": True, "B": False}, id="several, any case"),
    ],
)
def test_gates_from_the_command_line(text: str, want: dict[str, bool]) -> None:
    assert parse_gates(text) == want


@pytest.mark.parametrize("text", ["GroveIntegration", "GroveIntegration=on"])
def test_a_gate_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidConfig, match="feature gate"):
        parse_gates(text)


@pytest.mark.parametrize(
    ("annotation", "want"),
    [
        pytest.param(None, 600.0, id="absent"),
        pytest.param("90s", 90.0, id="a Go duration"),
        pytest.param("1h30m", 5400.0, id="a long one"),
        pytest.param("30", 30.0, id="whole seconds"),
        pytest.param("0", 600.0, id="no time at all counts as absent"),
        pytest.param("100ms", 600.0, id="less than a second counts as absent"),
        pytest.param("-5s", 600.0, id="negative counts as absent"),
        pytest.param("tomorrow", 600.0, id="unreadable counts as absent"),
        pytest.param("9" * 5000, 600.0, id="more digits than can be read count as absent"),
    ],
)
def test_gang_timeout(annotation: str | None, want: float) -> None:
    assert gang_timeout_s(annotation, 600.0) == want
