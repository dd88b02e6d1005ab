"""Broken PodCliqueSets for tests that must survive anything: a rich set, hypothesis' ways to spoil it, and the law.

The law: every answer is well formed, every refusal names its fields, what is admitted fits the published schema, and
filling in defaults twice adds nothing.
"""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

from hypothesis import strategies as st

from grove import crds
from grove.admission.rules.authorizer import Authorizer, exempt_users
from grove.admission.rules.feasibility import NodeFacts, NodeSummary
from grove.admission.rules.lookups import Known
from grove.admission.rules.review import DEFAULT_SET, VALIDATE_SET, Admission
from grove.sim.patch import json_patch
from grove.sim.schema import Structure
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import binding, response, review_of, schedulers


def rich() -> dict:
    """A set that uses most fields."""
    rack = {"topologyName": "cluster", "pack": {"required": "rack", "preferred": "host"}}
    sharing = [{"name": "gpu", "scope": "PerReplica", "filter": {"childCliqueNames": ["work"]}}]
    obj = pcs(
        "demo",
        clique("router", 2, scale={"minReplicas": 2, "maxReplicas": 4}, labels={"a": "b"}, annotations={"c": "d"}),
        clique(
            "work",
            3,
            starts_after=["router"],
            topology={"pack": {"required": "host"}},
            sharing=[{"name": "theirs", "namespace": "infra", "scope": "AllReplicas"}],
            volumes=[{"name": "m", "emptyDir": {}}],
            tolerations=[{"key": "gpu", "operator": "Exists"}],
        ),
        groups=[group("grp", "work", replicas=2, scale={"minReplicas": 1, "maxReplicas": 3}, resourceSharing=sharing)],
        startup="CliqueStartupTypeExplicit",
        topologyConstraint=rack,
        resourceClaimTemplates=[{"name": "gpu", "templateSpec": {"spec": {"devices": {"requests": [{"name": "x"}]}}}}],
        strategy={"type": "OnDelete"},
    )
    obj["metadata"] |= {"annotations": {"grove.io/mnnvl-group": "pool"}, "labels": {"x": "y"}}
    return obj


def places(value: Any, at: tuple = ()) -> list[tuple]:
    """The way to every value inside."""
    found = [at] if at else []
    if isinstance(value, dict):
        for key, one in value.items():
            found += places(one, (*at, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            found += places(one, (*at, index))
    return found


TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", " ", "demo", "a.b", "A", "x" * 70, "\u0000", "ſ", "💥", "../..", "-1", "1e999", "4h0m0s", "rack", "volcano"]
)
NUMBERS = (
    st.integers()
    | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**400])
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
BASE = rich()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value]}
    return value


@st.composite
def mutated(draw: st.DrawFn, base: dict = BASE) -> dict:
    """The rich set with up to four values replaced, removed, repeated or put under a new key."""
    obj = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, 4))):
        *way, last = draw(st.sampled_from(places(obj)))
        parent: Any = obj
        for part in way:
            parent = parent[part]
        action = draw(st.sampled_from(["replace", "remove", "repeat", "add", "deepen"]))
        if action == "replace":
            parent[last] = draw(VALUES)
        elif action == "remove":
            del parent[last]
        elif action == "deepen":
            parent[last] = nested(draw(st.sampled_from([5, 40])))
        elif isinstance(parent, list):
            parent.insert(0, copy.deepcopy(parent[last]) if action == "repeat" else draw(VALUES))
        else:
            parent[draw(TEXTS)] = copy.deepcopy(parent[last]) if action == "repeat" else draw(VALUES)
        if not obj:
            break
    return obj


NODES = NodeSummary([NodeFacts({"example.com/rack": "r"}, {"cpu": 1000, "pods": 10})], ["example.com/rack"])
ADMISSION = Admission(
    backends=schedulers("default-scheduler", "kai-scheduler", "volcano"),
    topology_enabled=True,
    mnnvl_enabled=True,
    authorizer=Authorizer(frozenset({"operator"}), exempt_users("grove-system")),
    nodes=lambda: NODES,
)
KNOWN = Known(topologies={"cluster": binding()}, queues={"default": {"status": {"state": "Open"}}})
# The simulator's reading of the schema is a second one, written by other hands: what we let pass has to pass there.
SCHEMAS = {
    one["metadata"]["name"]: Structure(one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) for one in crds.load()
}


def check(found: dict) -> None:
    """A well-formed answer; a refusal is 422 and every cause has a path and words."""
    json.dumps(found)
    if found["allowed"]:
        assert "status" not in found
        return
    assert found["status"]["code"] == 422, found["status"]
    assert found["status"]["details"]["causes"]
    for cause in found["status"]["details"]["causes"]:
        assert cause["field"]
        assert cause["message"]
        assert cause["reason"]


def accepted_by_schema(kind: str, obj: dict) -> bool:
    schema = SCHEMAS[kind]
    return not schema.faults(schema.shape(copy.deepcopy(obj)))


def check_set(obj: dict) -> None:
    """The law, for one set that is created."""
    patch = response(ADMISSION, DEFAULT_SET, review_of(obj)).get("patch")
    full = json_patch(obj, json.loads(base64.b64decode(patch))) if patch else obj
    assert "patch" not in response(ADMISSION, DEFAULT_SET, review_of(full))
    found = response(ADMISSION, VALIDATE_SET, review_of(full), KNOWN)
    check(found)
    if found["allowed"]:
        assert accepted_by_schema("podcliquesets.grove.io", full)
