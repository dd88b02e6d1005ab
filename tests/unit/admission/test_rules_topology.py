"""Topology constraints of new sets, step by step, and the ClusterTopologyBinding they refer to."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import VALIDATE_BINDING, binding, changed, faults, plain, schedulers, warnings

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import DEFAULT_SET, Admission

ADMISSION = Admission(topology_enabled=True)
OFF = Admission(topology_enabled=False)
KNOWN = Known(topologies={"cluster": binding(), "broken": ConnectionError("connection refused")})
T = "spec.template"
C = f"{T}.cliques[0].topologyConstraint"
G = f"{T}.podCliqueScalingGroups[0].topologyConstraint"
S = f"{T}.topologyConstraint"


def packed(required: str = "", preferred: str = "", name: str = "") -> dict:
    pack = {key: value for key, value in (("required", required), ("preferred", preferred)) if value}
    return {"topologyName": name, "pack": pack} if name else {"pack": pack}


def constrained(own: dict | None = None, in_group: dict | None = None, in_clique: dict | None = None) -> dict:
    """A set with one clique in one group, constrained at up to three levels."""
    fields = {"topologyConstraint": in_group} if in_group else {}
    obj = pcs("demo", clique("a", topology=in_clique), groups=[group("g", "a", **fields)])
    return changed(obj, (f"{T}.topologyConstraint", own)) if own else obj


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(plain(), [], id="no constraint, nothing to check"),
        pytest.param(
            constrained(packed("rack", name="cluster"), packed("rack"), packed("host")), [], id="names are inherited"
        ),
        pytest.param(
            constrained(None, packed("rack", name="cluster"), packed("host")), [], id="a clique inherits from its group"
        ),
        pytest.param(constrained(packed("", "rack", name="cluster")), [], id="a preference alone"),
        pytest.param(
            constrained(packed("rack")),
            [f"{S}.topologyName: Required value: no parent names a topology: name a ClusterTopologyBinding"],
            id="no name anywhere",
        ),
        pytest.param(
            constrained(None, packed("rack"), packed("host", name="cluster")),
            [f"{G}.topologyName: Required value: no parent names a topology: name a ClusterTopologyBinding"],
            id="a child's name does not help its parent",
        ),
        pytest.param(
            constrained(packed("rack", name="cluster"), packed("rack", name="other")),
            [
                f'{G}.topologyName: Invalid value: "other": differs from "cluster", inherited from {S}: '
                "a PodCliqueSet uses one topology only"
            ],
            id="a child names another topology",
        ),
        pytest.param(
            pcs(
                "demo",
                clique("a", topology=packed("rack", name="cluster")),
                clique("b", topology=packed("rack", name="other")),
            ),
            [
                f'{T}.cliques[0].topologyConstraint.topologyName: Invalid value: "cluster": '
                "a PodCliqueSet uses one topology only, found: cluster, other",
                f'{T}.cliques[1].topologyConstraint.topologyName: Invalid value: "other": '
                "a PodCliqueSet uses one topology only, found: cluster, other",
            ],
            id="unrelated constraints name two topologies",
        ),
        pytest.param(
            constrained(None, None, packed("rack", name="nowhere")),
            [
                f'{C}.topologyName: Invalid value: "nowhere": no such ClusterTopologyBinding: '
                "create it first, or name another one"
            ],
            id="the binding must exist",
        ),
        pytest.param(
            constrained(packed("rack", name="broken")),
            [
                f'{S}.topologyName: Internal error: ClusterTopologyBinding "broken" could not be read: connection '
                "refused"
            ],
            id="a binding that cannot be read",
        ),
        pytest.param(
            constrained(packed("row", "block", name="cluster")),
            [
                f'{S}.pack.required: Invalid value: "row": not a level of the topology, which has: zone, rack, host',
                f'{S}.pack.preferred: Invalid value: "block": not a level of the topology, which has: zone, rack, host',
            ],
            id="domains are levels of the binding",
        ),
        pytest.param(
            constrained(packed("host", name="cluster"), packed("rack"), packed("zone")),
            [
                f'{S}: Invalid value: "host": narrower than "zone", which clique "a" requires within it',
                f'{G}: Invalid value: "rack": narrower than "zone", which clique "a" requires within it',
                f'{S}: Invalid value: "host": narrower than "rack", which scaling group "g" requires within it',
            ],
            id="a parent is not narrower than a child",
        ),
        pytest.param(
            constrained(packed("", "host", name="cluster"), None, packed("", "rack")),
            [f'{S}.pack.preferred: Invalid value: "host": narrower than "rack", which clique "a" prefers within it'],
            id="nor are its preferences",
        ),
        pytest.param(
            constrained(packed("host", name="cluster"), None, packed("", "zone")),
            [],
            id="a requirement is not compared with a preference",
        ),
    ],
)
def test_topology_of_a_new_set(obj: dict, want: list[str]) -> None:
    assert faults(ADMISSION, obj, lookups=KNOWN) == want


LEGACY = {"topologyName": "cluster", "packDomain": "rack"}
BOTH = {**LEGACY, "pack": {"required": "rack"}}


@pytest.mark.parametrize("where", [S, C, G])
@pytest.mark.parametrize(
    ("constraint", "want"),
    [
        pytest.param(
            LEGACY,
            ".packDomain: Forbidden: packDomain is deprecated and cannot be used on new workloads; use pack.required",
            id="the legacy field on a new set",
        ),
        pytest.param(
            {"topologyName": "cluster"},
            ".pack: Required value: topologyConstraint must specify pack or deprecated packDomain",
            id="a constraint without a domain",
        ),
        pytest.param(
            {"topologyName": "cluster", "pack": {}},
            ".pack: Required value: pack must specify at least one of required or preferred",
            id="an empty pack",
        ),
        pytest.param(
            BOTH,
            '.pack.required: Invalid value: "rack": must not set both pack.required and deprecated packDomain',
            id="both spellings of a required domain",
        ),
    ],
)
def test_a_constraint_that_says_no_domain_or_says_it_wrongly(where: str, constraint: dict, want: str) -> None:
    own, in_group, in_clique = (constraint if place == where else None for place in (S, G, C))
    found = faults(ADMISSION, constrained(own, in_group, in_clique), lookups=KNOWN)
    assert found == [one for one in found if one.startswith(where)], "nothing else is wrong"
    assert where + want in found


@pytest.mark.parametrize("where", [S, C, G])
def test_the_legacy_field_is_refused_before_the_schema_is_asked(where: str) -> None:
    """The CRD's own rule comes between the two webhooks, and its path has no index."""
    own, in_group, in_clique = (LEGACY if place == where else None for place in (S, G, C))
    obj = constrained(own, in_group, in_clique)
    words = "Forbidden: packDomain is deprecated and cannot be used on new workloads; use pack.required"
    assert faults(ADMISSION, obj, path=DEFAULT_SET) == [f"{where}.packDomain: {words}"]
    assert faults(ADMISSION, obj, obj, path=DEFAULT_SET) == [], "what is stored keeps its spelling"


def test_both_spellings_are_reported_beside_the_legacy_field_before_the_schema_is_asked() -> None:
    assert faults(ADMISSION, constrained(BOTH), path=DEFAULT_SET) == [
        f'{S}.pack.required: Invalid value: "rack": must not set both pack.required and deprecated packDomain',
        f"{S}.packDomain: Forbidden: packDomain is deprecated and cannot be used on new workloads; use pack.required",
    ]


def test_both_spellings_contradict_on_an_update_too() -> None:
    found = faults(ADMISSION, constrained(BOTH), constrained(LEGACY), lookups=KNOWN)
    want = f'{S}.pack.required: Invalid value: "rack": must not set both pack.required and deprecated packDomain'
    assert want in found


def test_every_constraint_is_refused_while_topology_is_off() -> None:
    obj = constrained(packed("rack", name="cluster"), packed("rack"), packed("host"))
    refused = "not allowed while topology-aware scheduling is disabled (topologyAwareScheduling.enabled)"
    assert faults(OFF, obj) == [
        f'{S}: Invalid value: {{"topologyName":"cluster","required":"rack"}}: {refused}',
        f'{G}: Invalid value: {{"required":"rack"}}: {refused}',
        f'{C}: Invalid value: {{"required":"host"}}: {refused}',
    ]


def test_an_update_is_not_held_against_a_binding_that_changed() -> None:
    obj = constrained(packed("row", name="cluster"))
    assert faults(ADMISSION, changed(obj, ("spec.replicas", 3)), obj, lookups=KNOWN) == []


def test_a_preference_broader_than_the_requirement_is_warned_about() -> None:
    assert warnings(ADMISSION, constrained(packed("rack", "zone", name="cluster")), lookups=KNOWN) == [
        f'{S}.pack.preferred: "zone" is broader than the required "rack" and has no effect'
    ]


BACKENDS = Admission(backends=schedulers("default-scheduler", "kai-scheduler", topology_aware=("kai-scheduler",)))


def bound(*schedulers: str) -> dict:
    references = [{"schedulerName": name, "topologyReference": "theirs"} for name in schedulers]
    return changed(binding(), ("spec.schedulerTopologyBindings", references))


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(binding(), [], id="a plain binding"),
        pytest.param(bound("kai-scheduler"), [], id="a topology of KAI's own"),
        pytest.param(
            changed(binding(), ("spec.levels.2", {"domain": "rack", "key": "other/rack"})),
            ['spec.levels[2].domain: Duplicate value: "rack": also at levels[1]'],
            id="a domain twice",
        ),
        pytest.param(
            changed(binding(), ("spec.levels.2", {"domain": "node", "key": "example.com/rack"})),
            ['spec.levels[2].key: Duplicate value: "example.com/rack": also at levels[1]'],
            id="a key twice",
        ),
        pytest.param(
            bound("kai-scheduler", "kai-scheduler"),
            [
                'spec.schedulerTopologyBindings[1].schedulerName: Duplicate value: "kai-scheduler": '
                "a scheduler may be bound once"
            ],
            id="a scheduler twice",
        ),
        pytest.param(
            bound("volcano"),
            [
                'spec.schedulerTopologyBindings[0].schedulerName: Invalid value: "volcano": scheduler is not '
                "enabled in "
                "the operator configuration, which has: default-scheduler, kai-scheduler"
            ],
            id="a scheduler that is not enabled",
        ),
        pytest.param(
            bound("default-scheduler"),
            [
                'spec.schedulerTopologyBindings[0].schedulerName: Invalid value: "default-scheduler": scheduler has no '
                "topology object of its own to bind to; those that have: kai-scheduler"
            ],
            id="a scheduler without topologies",
        ),
        pytest.param(
            changed(binding(), ("spec.levels", [])),
            ["spec.levels: Invalid value: []: spec.levels in body should have at least 1 items"],
            id="no levels",
        ),
        pytest.param(
            changed(binding(), ("spec.levels.0.domain", "Zone")),
            [
                'spec.levels[0].domain: Invalid value: "Zone": spec.levels[0].domain in body should match '
                "'^[a-z][a-z0-9-]*$'"
            ],
            id="a domain's spelling",
        ),
    ],
)
def test_a_binding(obj: dict, want: list[str]) -> None:
    assert faults(BACKENDS, obj, path=VALIDATE_BINDING) == want
    assert faults(BACKENDS, obj, binding(pod="example.com/pod"), path=VALIDATE_BINDING) == want
