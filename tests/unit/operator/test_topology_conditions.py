"""Topology: the condition on sets, the status of bindings."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.observed import NOW, binding, set_of

from grove.api.meta import Json, find_condition
from grove.api.topology import ClusterTopologyBinding
from grove.backends import Backends
from grove.backends.base import TopologySync
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend
from grove.operator.shared.layout import topology_name
from grove.operator.topology.levels import (
    became,
    binding_status,
    referenced_domains,
    with_levels_condition,
)

BACKENDS = Backends([GroveBackend(), KubeBackend()], "grove-scheduler")


def constrained(required: str = "rack", name: str = "topo") -> Json:
    constraint: Json = {"pack": {"required": required}}
    if name:
        constraint["topologyName"] = name
    return pcs("d", clique("w"), topologyConstraint=constraint)


@pytest.mark.parametrize(
    ("manifest", "topology", "enabled", "wanted"),
    [
        pytest.param(
            constrained(), binding(), False, ("Unknown", "TopologyAwareSchedulingDisabled"), id="switched off"
        ),
        pytest.param(pcs("d", clique("w")), None, False, None, id="switched off and not asked for"),
        pytest.param(
            pcs("d", clique("w")), None, True, ("False", "AllClusterTopologyLevelsAvailable"), id="nothing asked for"
        ),
        pytest.param(constrained(name=""), None, True, ("Unknown", "TopologyNameMissing"), id="no binding named"),
        pytest.param(constrained(), None, True, ("Unknown", "ClusterTopologyNotFound"), id="binding missing"),
        pytest.param(
            constrained("nosuch"), binding(), True, ("True", "ClusterTopologyLevelsUnavailable"), id="a level missing"
        ),
        pytest.param(constrained(), binding(), True, ("False", "AllClusterTopologyLevelsAvailable"), id="all there"),
    ],
)
def test_levels_condition(
    manifest: Json, topology: ClusterTopologyBinding | None, enabled: bool, wanted: tuple[str, str] | None
) -> None:
    found = with_levels_condition((), set_of(manifest), topology, enabled=enabled, now=NOW)
    assert [(one.status, one.reason, one.observed_generation) for one in found] == ([(*wanted, 1)] if wanted else [])


def test_the_condition_goes_when_nothing_is_asked_for_any_more() -> None:
    before = with_levels_condition((), set_of(constrained()), None, enabled=False, now=NOW)
    assert with_levels_condition(before, set_of(pcs("d", clique("w"))), None, enabled=False, now=NOW) == ()


def test_missing_levels_are_named() -> None:
    (found,) = with_levels_condition((), set_of(constrained("nosuch")), binding(), enabled=True, now=NOW)
    assert "no level nosuch" in found.message


def test_the_first_name_counts_and_every_domain_is_found() -> None:
    manifest = pcs(
        "d",
        clique("a", topology={"topologyName": "late", "pack": {"preferred": "host"}}),
        clique("b"),
        groups=[group("g", "b", topologyConstraint={"topologyName": "early", "packDomain": "rack"})],
    )
    observed = set_of(manifest)
    assert topology_name(observed) == "early"
    assert referenced_domains(observed) == ("rack", "host")


def compare(backend: str, reference: str) -> TopologySync:
    return GroveBackend().topology_drift(binding(), reference, None)


def test_a_binding_our_scheduler_reads_is_in_sync() -> None:
    status = binding_status(binding(), BACKENDS, compare, now=NOW)
    assert [
        (one.scheduler_name, one.topology_reference, one.in_sync) for one in status.scheduler_topology_statuses
    ] == [("grove-scheduler", "topo", True)]
    assert [(one.type, one.status, one.reason) for one in status.conditions] == [
        ("SchedulerTopologyDrift", "False", "InSync")
    ]
    assert status.observed_generation == 1
    assert became((), status.conditions, "SchedulerTopologyDrift") == "False"
    assert became(status.conditions, status.conditions, "SchedulerTopologyDrift") == ""


def test_a_reference_to_something_else_is_drift() -> None:
    named = binding(schedulerTopologyBindings=[{"schedulerName": "grove-scheduler", "topologyReference": "x"}])
    status = binding_status(named, BACKENDS, compare, now=NOW)
    condition = find_condition(status.conditions, "SchedulerTopologyDrift")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Drift")
    assert status.scheduler_topology_statuses[0].message


def test_a_scheduler_that_is_not_there_is_said_to_be_missing() -> None:
    named = binding(schedulerTopologyBindings=[{"schedulerName": "kai-scheduler", "topologyReference": "x"}])
    status = binding_status(named, BACKENDS, compare, now=NOW)
    assert [one.scheduler_name for one in status.scheduler_topology_statuses] == ["grove-scheduler", "kai-scheduler"]
    condition = find_condition(status.conditions, "SchedulerTopologyDrift")
    assert condition is not None
    assert (condition.status, condition.reason) == ("Unknown", "TopologyNotFound")


def test_a_failed_write_holds_the_generation_back() -> None:
    status = binding_status(binding(), BACKENDS, compare, failed=["kai-scheduler"], now=NOW)
    assert status.observed_generation == 0


def test_without_topology_aware_schedulers_there_is_nothing_to_say() -> None:
    only_kube = Backends([KubeBackend()], "default-scheduler")
    before = binding_status(binding(), BACKENDS, compare, now=NOW)
    held = msgspec.structs.replace(binding(), status=before)
    after = binding_status(held, only_kube, compare, now=NOW)
    assert (after.conditions, after.scheduler_topology_statuses) == ((), ())


def test_a_topology_that_loses_the_level_of_a_spread_is_reported_on_the_set() -> None:
    spread = {"topologyName": "topo", "domain": "zone"}
    observed = set_of(pcs("d", {**clique("w"), "spreadConstraint": {"domain": "host"}}, spreadConstraint=spread))
    assert referenced_domains(observed) == ("zone", "host")
    [found] = with_levels_condition((), observed, binding("topo", ("rack", "example.com/rack")), enabled=True, now=NOW)
    assert (found.status, found.reason) == ("True", "ClusterTopologyLevelsUnavailable")
    assert found.message == "ClusterTopologyBinding topo has no level zone, host; those constraints are not applied"


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        pytest.param(("zone", "rack", "host"), "", id="as it was admitted"),
        pytest.param(
            ("rack", "zone", "host"),
            'spreadConstraint of the set over "zone": narrower than "rack", which topologyConstraint requires: '
            "a replica is counted in one domain",
            id="a replica is packed into a broader domain now",
        ),
        pytest.param(
            ("zone", "host", "rack"),
            'spreadConstraint of clique "w" over "host": nothing can be spread over it: '
            'topologyConstraint of the set requires one "rack"',
            id="the pods of a clique are in one domain now",
        ),
    ],
)
def test_a_topology_whose_levels_get_another_order_is_reported_on_the_set(levels: tuple[str, ...], why: str) -> None:
    pods = {**clique("w"), "spreadConstraint": {"domain": "host"}}
    spread, pack = {"topologyName": "topo", "domain": "zone"}, {"topologyName": "topo", "pack": {"required": "rack"}}
    observed = set_of(pcs("d", pods, spreadConstraint=spread, topologyConstraint=pack))
    topology = binding("topo", *((one, f"example.com/{one}") for one in levels))
    [found] = with_levels_condition((), observed, topology, enabled=True, now=NOW)
    if not why:
        assert (found.status, found.reason) == ("False", "AllClusterTopologyLevelsAvailable")
        return
    assert (found.status, found.reason) == ("True", "ClusterTopologyLevelsContradict")
    assert found.message == f"the order of the levels in ClusterTopologyBinding topo contradicts a constraint: {why}"
