"""What an existing set may not change, and the ways out of the legacy packDomain."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import ABSENT, binding, changed, faults, plain, warnings

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.lookups import Known
from grove.admission.rules.review import Admission

ADMISSION = Admission(topology_enabled=True, mnnvl_enabled=True)
KNOWN = Known(topologies={"cluster": binding()})
T = "spec.template"
SHARE = [{"name": "theirs", "scope": "AllReplicas"}]
TEMPLATES = [{"name": "gpu", "templateSpec": {"spec": {"devices": {"requests": [{"name": "one"}]}}}}]


def in_order(*names: str) -> dict:
    return pcs("demo", *(clique(name) for name in names), startup="CliqueStartupTypeInOrder")


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            pcs("demo", clique("a")),
            pcs("demo", clique("a"), clique("b")),
            [
                f"{T}.cliques: Forbidden: cliques cannot be added to or removed from an existing workload "
                "(there were 1, now 2)",
                f'{T}.cliques[1].name: Forbidden: clique "b" is new: the names of cliques cannot change',
            ],
            id="a clique is added",
        ),
        pytest.param(
            pcs("demo", clique("a"), clique("b")),
            pcs("demo", clique("a")),
            [
                f"{T}.cliques: Forbidden: cliques cannot be added to or removed from an existing workload "
                "(there were 2, now 1)"
            ],
            id="a clique is removed",
        ),
        pytest.param(
            pcs("demo", clique("a")),
            pcs("demo", clique("b")),
            [f'{T}.cliques[0].name: Forbidden: clique "b" is new: the names of cliques cannot change'],
            id="a clique is renamed",
        ),
        pytest.param(
            in_order("a", "b"),
            in_order("b", "a"),
            [
                f'{T}.cliques: Invalid value: ["b","a"]: the order of cliques cannot change with start order '
                "CliqueStartupTypeInOrder, it was: a, b"
            ],
            id="the order changes where it matters",
        ),
        pytest.param(
            pcs("demo", clique("a"), clique("b")), pcs("demo", clique("b"), clique("a")), [], id="any order may change"
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.cliques.0.spec.roleName", "other")),
            [
                f'{T}.cliques[0].spec.roleName: Invalid value: "other": field is immutable, the value of clique '
                '"router" is '
                '"router"'
            ],
            id="roleName",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.cliques.0.spec.minAvailable", 1)),
            [
                f"{T}.cliques[0].spec.minAvailable: Invalid value: 1: field is immutable, the value of clique "
                '"router" is 2'
            ],
            id="minAvailable of a clique",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.cliques.0.spec.startsAfter", ["lead"])),
            [
                f'{T}.cliques[0].spec.startsAfter: Invalid value: ["lead"]: field is immutable, the value of clique '
                '"router" '
                "is []"
            ],
            id="startsAfter",
        ),
        pytest.param(
            pcs("demo", clique("a")),
            pcs("demo", clique("a", schedulerName="default-scheduler")),
            [
                f'{T}.cliques[0].spec.podSpec.schedulerName: Invalid value: "default-scheduler": field is immutable, '
                'the value of clique "a" is ""'
            ],
            id="schedulerName",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.cliques.1.resourceSharing", SHARE)),
            [
                f'{T}.cliques[1].resourceSharing: Invalid value: [{{"name":"theirs","scope":"AllReplicas"}}]: '
                "field is immutable"
            ],
            id="resourceSharing of a clique",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.cliqueStartupType", "CliqueStartupTypeInOrder")),
            [
                f'{T}.cliqueStartupType: Invalid value: "CliqueStartupTypeInOrder": field is immutable, the value is '
                '"CliqueStartupTypeAnyOrder"'
            ],
            id="the start order",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.podCliqueScalingGroups", ABSENT)),
            [
                f"{T}.podCliqueScalingGroups: Forbidden: scaling groups cannot be added to or removed from an existing "
                "workload (there were 1, now 0)"
            ],
            id="a group is removed",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.podCliqueScalingGroups.0.name", "new")),
            [
                f'{T}.podCliqueScalingGroups[0].name: Forbidden: scaling group "new" is new: the names of scaling '
                "groups cannot change"
            ],
            id="a group is renamed",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.podCliqueScalingGroups.0.cliqueNames", ["work", "lead"])),
            [
                f'{T}.podCliqueScalingGroups[0].cliqueNames: Invalid value: ["work","lead"]: field is immutable, the '
                "value "
                'of scaling group "grp" is ["lead","work"]'
            ],
            id="members of a group, their order included",
        ),
        pytest.param(
            pcs("demo", clique("a"), groups=[group("g", "a", replicas=3)]),
            pcs("demo", clique("a"), groups=[group("g", "a", replicas=3, min_available=2)]),
            [
                f"{T}.podCliqueScalingGroups[0].minAvailable: Invalid value: 2: field is immutable, the value of "
                'scaling group "g" is 1'
            ],
            id="minAvailable of a group",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.podCliqueScalingGroups.0.resourceSharing", SHARE)),
            [
                f"{T}.podCliqueScalingGroups[0].resourceSharing: Invalid value: "
                f'[{{"name":"theirs","scope":"AllReplicas"}}]'
                ': field is immutable (of scaling group "grp")'
            ],
            id="resourceSharing of a group",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.resourceSharing", SHARE)),
            [f'{T}.resourceSharing: Invalid value: [{{"name":"theirs","scope":"AllReplicas"}}]: field is immutable'],
            id="resourceSharing of the set",
        ),
        pytest.param(
            changed(plain(), (f"{T}.resourceClaimTemplates", TEMPLATES)),
            plain(),
            [f"{T}.resourceClaimTemplates: Invalid value: null: field is immutable"],
            id="claim templates",
        ),
        pytest.param(
            changed(plain(), (f"{T}.resourceSharing", [])), plain(), [], id="an empty list is as good as none"
        ),
        pytest.param(
            plain(),
            changed(
                plain(),
                ("spec.replicas", 5),
                (f"{T}.cliques.0.spec.replicas", 4),
                (f"{T}.cliques.0.spec.podSpec.containers.0.image", "registry.k8s.io/pause:3.11"),
                (f"{T}.cliques.0.labels", {"a": "b"}),
                (f"{T}.podCliqueScalingGroups.0.replicas", 2),
                (f"{T}.terminationDelay", "10m"),
                (f"{T}.priorityClassName", "high"),
                ("spec.updateStrategy", {"type": "OnDelete"}),
            ),
            [],
            id="what may change",
        ),
        pytest.param(
            changed(plain(), ("metadata.annotations", {"grove.io/mnnvl-group": "a"})),
            changed(plain(), ("metadata.annotations", {"grove.io/mnnvl-group": "b"})),
            [
                'metadata.annotations.grove.io/mnnvl-group: Invalid value: "b": cannot be changed (it is "a"): '
                "the annotation is immutable"
            ],
            id="the NVLink group of the set changes",
        ),
        pytest.param(
            plain(),
            changed(plain(), (f"{T}.cliques.0.annotations", {"grove.io/mnnvl-group": "b"})),
            [
                f"{T}.cliques[0].annotations.grove.io/mnnvl-group: Forbidden: cannot be added to an existing workload: "
                "the annotation is immutable"
            ],
            id="the NVLink group of a clique is added",
        ),
        pytest.param(
            changed(plain(), (f"{T}.podCliqueScalingGroups.0.annotations", {"grove.io/mnnvl-group": "b"})),
            plain(),
            [
                f"{T}.podCliqueScalingGroups[0].annotations.grove.io/mnnvl-group: Forbidden: cannot be removed (it "
                'is "b"): '
                "the annotation is immutable"
            ],
            id="the NVLink group of a scaling group is removed",
        ),
    ],
)
def test_what_cannot_change(old: dict, new: dict, want: list[str]) -> None:
    assert faults(ADMISSION, new, old, lookups=KNOWN) == want


def constrained(at: str = T, **fields: object) -> dict:
    return changed(plain(), (f"{at}.topologyConstraint", fields))


RACK = {"topologyName": "cluster", "pack": {"required": "rack"}}


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            constrained(**RACK),
            constrained(topologyName="other", pack={"required": "rack"}),
            [
                f"{T}.topologyConstraint.topologyName: Forbidden: the topology of an existing workload cannot change "
                '("cluster" to "other")'
            ],
            id="another topology",
        ),
        pytest.param(
            plain(),
            constrained(**RACK),
            [
                f"{T}.topologyConstraint.topologyName: Forbidden: the topology of an existing workload cannot change "
                '("" to "cluster")'
            ],
            id="a constraint of the set is added",
        ),
        pytest.param(
            constrained(**RACK),
            constrained(topologyName="cluster", pack={"required": "host"}),
            [
                f"{T}.topologyConstraint: Forbidden: a topology constraint of an existing workload cannot change "
                '(pack.required "rack" to "host")'
            ],
            id="another domain",
        ),
        pytest.param(
            constrained(f"{T}.cliques.0", **RACK),
            plain(),
            [
                f"{T}.cliques[0].topologyConstraint: Forbidden: a topology constraint cannot be removed from an "
                "existing "
                "workload"
            ],
            id="a constraint of a clique is removed",
        ),
        pytest.param(
            plain(),
            constrained(f"{T}.podCliqueScalingGroups.0", **RACK),
            [
                f"{T}.podCliqueScalingGroups[0].topologyConstraint: Forbidden: a topology constraint cannot be "
                "added to "
                "an existing workload"
            ],
            id="a constraint of a group is added",
        ),
        pytest.param(
            constrained(topologyName="cluster", packDomain="rack"),
            constrained(topologyName="cluster", pack={"required": "rack"}),
            [],
            id="packDomain moves to pack.required",
        ),
        pytest.param(
            constrained(topologyName="cluster", packDomain="rack"),
            constrained(topologyName="cluster", pack={"required": "host"}),
            [
                f"{T}.topologyConstraint: Forbidden: a topology constraint of an existing workload cannot change "
                '(packDomain "rack" to "", pack.required "" to "host")'
            ],
            id="packDomain moves and changes",
        ),
        pytest.param(
            constrained(packDomain="rack"),
            constrained(topologyName="cluster", packDomain="rack"),
            [],
            id="legacy repair: a name is added first",
        ),
        pytest.param(
            constrained(packDomain="rack"),
            constrained(topologyName="nowhere", packDomain="rack"),
            [
                f'{T}.topologyConstraint.topologyName: Invalid value: "nowhere": no such ClusterTopologyBinding: '
                "create it first, or name another one"
            ],
            id="legacy repair: the name must be one that exists",
        ),
        pytest.param(
            constrained(packDomain="row"),
            constrained(topologyName="cluster", packDomain="row"),
            [
                f'{T}.topologyConstraint.packDomain: Invalid value: "row": not a level of the topology, which has: '
                "zone, rack, host"
            ],
            id="legacy repair: the domain must be a level",
        ),
        pytest.param(
            constrained(packDomain="rack"),
            constrained(topologyName="cluster", packDomain="host"),
            [
                f"{T}.topologyConstraint.topologyName: Forbidden: the topology of an existing workload cannot change "
                '("" to "cluster")'
            ],
            id="legacy repair: the domain stays",
        ),
        pytest.param(
            constrained(f"{T}.cliques.0", packDomain="rack"),
            changed(
                plain(),
                (f"{T}.cliques.0.topologyConstraint", {"topologyName": "cluster", "packDomain": "rack"}),
            ),
            [],
            id="legacy repair of a clique",
        ),
        pytest.param(
            changed(
                constrained(**RACK),
                (f"{T}.cliques.0.topologyConstraint", {"topologyName": "other", "packDomain": "rack"}),
                (f"{T}.cliques.1.topologyConstraint", {"packDomain": "rack"}),
            ),
            changed(
                constrained(**RACK),
                ("spec.replicas", 3),
                (f"{T}.cliques.0.topologyConstraint", {"topologyName": "other", "packDomain": "rack"}),
                (f"{T}.cliques.1.topologyConstraint", {"packDomain": "rack"}),
            ),
            [
                f"{T}.topologyConstraint.topologyName: Internal error: the stored topology constraints contradict each "
                "other: recreate the workload"
            ],
            id="a stored contradiction cannot be repaired",
        ),
    ],
)
def test_topology_constraints_stay(old: dict, new: dict, want: list[str]) -> None:
    assert faults(ADMISSION, new, old, lookups=KNOWN) == want


def test_a_legacy_domain_that_stays_is_warned_about() -> None:
    old = constrained(topologyName="cluster", packDomain="rack")
    assert warnings(ADMISSION, changed(old, ("spec.replicas", 3)), old, lookups=KNOWN) == [
        f'{T}.topologyConstraint.packDomain is deprecated: move "rack" to pack.required'
    ]


def test_both_steps_of_the_legacy_repair_lead_to_today() -> None:
    first = constrained(packDomain="rack")
    second = constrained(topologyName="cluster", packDomain="rack")
    third = constrained(topologyName="cluster", pack={"required": "rack"})
    assert faults(ADMISSION, second, first, lookups=KNOWN) == []
    assert faults(ADMISSION, third, second, lookups=KNOWN) == []
    assert warnings(ADMISSION, changed(third, ("spec.replicas", 2)), third, lookups=KNOWN) == []


def test_a_set_that_was_stored_without_defaults_can_still_be_written() -> None:
    stored = changed(
        plain(), (f"{T}.cliques.0.spec.minAvailable", ABSENT), (f"{T}.cliqueStartupType", ABSENT)
    )  # applied before there was any admission
    finalized = changed(stored, ("metadata.finalizers", ["grove.io/podcliqueset"]))
    defaulted = with_additions(finalized, missing_defaults(finalized, stored))
    assert faults(ADMISSION, defaulted, stored, lookups=KNOWN) == []
    assert faults(ADMISSION, changed(defaulted, (f"{T}.cliques.0.spec.minAvailable", 1)), stored, lookups=KNOWN) == [
        f'{T}.cliques[0].spec.minAvailable: Invalid value: 1: field is immutable, the value of clique "router" is 2'
    ]
