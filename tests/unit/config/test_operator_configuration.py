"""The OperatorConfiguration file: defaults, every field, and every fault with its path."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest

import grove
from grove.config import ConfigError, OperatorConfiguration, load_configuration

HEAD = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n"

EVERYTHING = (
    HEAD
    + """
runtimeClientConnection: {qps: 50.5, burst: 60, contentType: application/json, acceptContentTypes: application/json}
leaderElection:
  enabled: true
  leaseDuration: 30s
  renewDeadline: 20s
  retryPeriod: 1m30s
  resourceLock: leases
  resourceName: my-lease
  resourceNamespace: my-namespace
server:
  webhooks: {bindAddress: 127.0.0.1, port: 9443, serverCertDir: /certs, secretName: my-cert, certProvisionMode: manual}
  healthProbes: {bindAddress: 0.0.0.0, port: 9444}
  metrics: {bindAddress: "::", port: 9445}
debugging: {enableProfiling: true, pprofBindHost: localhost, pprofBindPort: 6060}
controllers:
  podCliqueSet: {concurrentSyncs: 1}
  podClique: {concurrentSyncs: 2}
  podCliqueScalingGroup: {concurrentSyncs: 3}
  podGang: {concurrentSyncs: 4}
logLevel: debug
logFormat: text
authorizer: {enabled: true, exemptServiceAccountUserNames: [one, two]}
topologyAwareScheduling: {enabled: true}
network: {autoMNNVLEnabled: true}
updates: {surgePlacementTimeout: 2m}
scheduler:
  defaultProfileName: default-scheduler
  profiles:
  - {name: default-scheduler, config: {gangScheduling: false}}
  - {name: grove-scheduler}
"""
)


def test_an_empty_file_gives_the_defaults() -> None:
    config = load_configuration("")
    assert config.runtime_client_connection.qps is None
    assert config.runtime_client_connection.burst == 120
    assert config.leader_election.enabled is False
    assert config.leader_election.lease_duration == 15.0
    assert config.leader_election.resource_name == "grove-operator-leader-election"
    assert config.server.webhooks.port == 2750
    assert config.server.webhooks.server_cert_dir == "/etc/grove-operator/webhook-certs"
    assert config.server.health_probes.port == 2751
    assert config.server.metrics.port == 2752
    assert config.debugging is None
    assert config.controllers.pod_clique_set.concurrent_syncs == 10
    assert config.controllers.pod_clique.concurrent_syncs == 10
    assert config.controllers.pod_clique_scaling_group.concurrent_syncs == 5
    assert config.controllers.pod_gang.concurrent_syncs == 5
    assert (config.log_level, config.log_format) == ("info", "json")
    assert config.topology_aware_scheduling.enabled is False
    assert config.updates.surge_placement_timeout == 60.0
    assert [profile.name for profile in config.scheduler.profiles] == ["grove-scheduler", "default-scheduler"]
    assert config.scheduler.default_profile_name == "grove-scheduler"


def test_every_field_is_read() -> None:
    config = load_configuration(EVERYTHING)
    assert config.runtime_client_connection.qps == 50.5
    assert config.leader_election.retry_period == 90.0
    assert config.leader_election.resource_namespace == "my-namespace"
    assert config.server.webhooks.cert_provision_mode == "manual"
    assert config.server.webhooks.secret_name == "my-cert"
    assert config.server.metrics.bind_address == "::"
    assert config.debugging is not None
    assert config.debugging.pprof_bind_port == 6060
    assert config.controllers.pod_gang.concurrent_syncs == 4
    assert (config.log_level, config.log_format) == ("debug", "text")
    assert config.authorizer.exempt_service_account_user_names == ("one", "two")
    assert config.network.auto_mnnvl_enabled is True
    assert config.scheduler.profiles[0].config == {"gangScheduling": False}
    assert config.scheduler.default_profile_name == "default-scheduler"


def test_json_is_yaml_too() -> None:
    assert load_configuration('{"logLevel": "error"}').log_level == "error"


def test_debugging_has_defaults_of_its_own() -> None:
    debugging = load_configuration("debugging: {enableProfiling: true}").debugging
    assert debugging is not None
    assert (debugging.pprof_bind_host, debugging.pprof_bind_port) == ("127.0.0.1", 2753)


@pytest.mark.parametrize(
    ("scheduler", "names", "default"),
    [
        pytest.param("{}", ["grove-scheduler", "default-scheduler"], "grove-scheduler", id="nothing said: ours"),
        pytest.param(
            "{profiles: [{name: default-scheduler}]}",
            ["default-scheduler"],
            "default-scheduler",
            id="profiles without ours keep kube-scheduler as default",
        ),
        pytest.param(
            "{profiles: [{name: grove-scheduler}]}",
            ["grove-scheduler", "default-scheduler"],
            "grove-scheduler",
            id="kube-scheduler is always there",
        ),
        pytest.param(
            "{profiles: [{name: grove-scheduler}], defaultProfileName: default-scheduler}",
            ["grove-scheduler", "default-scheduler"],
            "default-scheduler",
            id="a named default wins",
        ),
    ],
)
def test_profiles(scheduler: str, names: list[str], default: str) -> None:
    found = load_configuration(f"scheduler: {scheduler}").scheduler
    assert [profile.name for profile in found.profiles] == names
    assert found.default_profile_name == default


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param("nosuch: 1", ["nosuch: unknown field"], id="unknown field at the top"),
        pytest.param(
            "server: {webhooks: {prt: 1}}", ["server.webhooks.prt: unknown field"], id="unknown field further down"
        ),
        pytest.param(
            "server: {webhooks: {port: high}}",
            ["server.webhooks.port: must be a whole number, got 'high'"],
            id="wrong type",
        ),
        pytest.param(
            "server: {metrics: {port: 70000}}",
            ["server.metrics.port: must be a port between 0 and 65535, got 70000"],
            id="no such port",
        ),
        pytest.param("server: 7", ["server: must be an object, got 7"], id="a number where an object belongs"),
        pytest.param("logLevel: loud", ["logLevel: must be one of debug, info, error, got 'loud'"], id="no such level"),
        pytest.param(
            "leaderElection: {leaseDuration: 15}",
            ["leaderElection.leaseDuration: must be a duration like 15s or 1m30s, got 15"],
            id="a duration without unit",
        ),
        pytest.param(
            "leaderElection: {enabled: true, leaseDuration: 5s}",
            ["leaderElection.leaseDuration: must be greater than leaderElection.renewDeadline"],
            id="lease shorter than its renewal",
        ),
        pytest.param(
            "controllers: {podGang: {concurrentSyncs: 0}}",
            ["controllers.podGang.concurrentSyncs: must be greater than 0, got 0"],
            id="nobody works",
        ),
        pytest.param(
            "updates: {surgePlacementTimeout: 0s}",
            ["updates.surgePlacementTimeout: must be greater than 0, got 0s"],
            id="no time for a surge unit",
        ),
        pytest.param(
            "runtimeClientConnection: {burst: -1}",
            ["runtimeClientConnection.burst: must not be negative, got -1"],
            id="negative burst",
        ),
        pytest.param(
            "runtimeClientConnection: {qps: 0}",
            ["runtimeClientConnection.qps: must be greater than 0, got 0"],
            id="no request ever",
        ),
        pytest.param(
            "runtimeClientConnection: {contentType: application/vnd.kubernetes.protobuf, acceptContentTypes: a/b}",
            [
                "runtimeClientConnection.contentType: only application/json is spoken, "
                "got 'application/vnd.kubernetes.protobuf'",
                "runtimeClientConnection.acceptContentTypes: only application/json is spoken, got 'a/b'",
            ],
            id="a language we do not speak",
        ),
        pytest.param(
            "authorizer: {exemptServiceAccountUserNames: [a, 1]}",
            ["authorizer.exemptServiceAccountUserNames[1]: must be a string, got 1"],
            id="a wrong entry is named by its place",
        ),
        pytest.param(
            "scheduler: {profiles: [{name: default-scheduler}, {name: default-scheduler}]}",
            ["scheduler.profiles[1].name: default-scheduler is listed twice"],
            id="a profile twice",
        ),
        pytest.param(
            "scheduler: {defaultProfileName: nobody}",
            ["scheduler.defaultProfileName: 'nobody' is not one of the profiles"],
            id="a default that is no profile",
        ),
        pytest.param(
            "kind: Other\nlogLevel: info",
            ["kind: must be OperatorConfiguration, got 'Other'"],
            id="another kind",
        ),
        pytest.param("[1, 2]", ["must be an object, got [1, 2]"], id="a list at the top"),
        pytest.param(
            "nosuch: 1\nserver: {webhooks: {port: x}}\nlogFormat: xml",
            [
                "nosuch: unknown field",
                "server.webhooks.port: must be a whole number, got 'x'",
                "logFormat: must be one of json, text, got 'xml'",
            ],
            id="every fault at once",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_path(text: str, faults: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_configuration(text)
    assert [str(fault) for fault in caught.value.faults] == faults


def test_text_that_is_not_yaml_is_refused() -> None:
    with pytest.raises(ConfigError, match="not YAML"):
        load_configuration("a: [")


def test_an_unknown_backend_is_refused_where_names_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"scheduler.profiles\[0\].name: no such scheduler backend: 'mine'"):
        load_configuration("scheduler: {profiles: [{name: mine}]}", frozenset({"grove-scheduler", "default-scheduler"}))


def test_election_settings_are_not_judged_while_election_is_off() -> None:
    config = load_configuration("leaderElection: {enabled: false, leaseDuration: 1s}")
    assert isinstance(config, OperatorConfiguration)


def test_there_is_no_setting_no_one_reads() -> None:
    sources = Path(grove.__file__).parent.rglob("*.py")
    read = {
        node.attr
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    assert sorted(set(settings(OperatorConfiguration)) - read) == []


def settings(section: type) -> Iterator[str]:
    """Names of all fields of a section and of the sections in it."""
    for name, hint in get_type_hints(section).items():
        if name in section.__struct_fields__:  # type: ignore[attr-defined]
            yield name
            for kind in (hint, *get_args(hint)):
                if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                    yield from settings(kind)
