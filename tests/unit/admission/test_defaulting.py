"""What is filled in, and that filling in is all that happens."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import ABSENT, changed, plain, response, review_of

from grove.admission.rules.defaulting import json_patch, missing_defaults, with_additions
from grove.admission.rules.review import DEFAULT_SET, Admission
from grove.sim.patch import json_patch as apply_json_patch

T = "spec.template"
C = f"{T}.cliques.0.spec"
G = f"{T}.podCliqueScalingGroups.0"


def added(obj: dict, old: dict | None = None) -> dict[str, object]:
    return {".".join(map(str, one.path)): one.value for one in missing_defaults(obj, old)}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(plain(), {}, id="a complete set gets nothing"),
        pytest.param(
            changed(plain(), ("metadata.namespace", "")), {"metadata.namespace": "default"}, id="an empty namespace"
        ),
        pytest.param(
            changed(plain(), (f"{C}.minAvailable", ABSENT)), {f"{C}.minAvailable": 2}, id="the floor is all replicas"
        ),
        pytest.param(
            changed(plain(), (f"{C}.minAvailable", ABSENT), (f"{C}.replicas", 0)),
            {f"{C}.minAvailable": 1},
            id="no replicas stay none and the floor is one",
        ),
        pytest.param(
            changed(plain(), (f"{C}.minAvailable", ABSENT), (f"{C}.replicas", ABSENT)),
            {f"{C}.replicas": 1, f"{C}.minAvailable": 1},
            id="replicas left out are one",
        ),
        pytest.param(
            pcs("demo", clique("a", 3, scale={"maxReplicas": 5})),
            {f"{C}.autoScalingConfig.minReplicas": 3},
            id="an autoscaler starts from the replicas",
        ),
        pytest.param(
            pcs("demo", clique("a", 0, min_available=2, scale={"maxReplicas": 5})),
            {f"{C}.autoScalingConfig.minReplicas": 2},
            id="an autoscaler of an idle clique starts from the floor",
        ),
        pytest.param(
            changed(plain(), (f"{C}.podSpec.restartPolicy", "")),
            {f"{C}.podSpec.restartPolicy": "Always"},
            id="an empty restart policy",
        ),
        pytest.param(
            changed(plain(), (f"{C}.podSpec.terminationGracePeriodSeconds", ABSENT)),
            {f"{C}.podSpec.terminationGracePeriodSeconds": 30},
            id="a grace period",
        ),
        pytest.param(
            changed(plain(), (f"{C}.roleName", ABSENT)), {f"{C}.roleName": ""}, id="a role name that is left out"
        ),
        pytest.param(
            pcs("demo", clique("a"), groups=[group("g", "a", replicas=3, scale={"maxReplicas": 5})]),
            {f"{G}.scaleConfig.minReplicas": 3},
            id="a group's autoscaler starts from its replicas",
        ),
        pytest.param(
            changed(plain(), (f"{G}.replicas", ABSENT), (f"{G}.minAvailable", ABSENT)),
            {f"{G}.replicas": 1, f"{G}.minAvailable": 1},
            id="a group is one of one",
        ),
        pytest.param(
            changed(plain(), (f"{T}.terminationDelay", None)),
            {f"{T}.terminationDelay": "4h0m0s"},
            id="a null is as good as nothing",
        ),
        pytest.param(
            changed(plain(), (f"{T}.headlessServiceConfig", ABSENT)),
            {f"{T}.headlessServiceConfig": {"publishNotReadyAddresses": True}},
            id="names of unready pods are published",
        ),
        pytest.param(
            changed(plain(), (f"{T}.headlessServiceConfig", {})),
            {f"{T}.headlessServiceConfig.publishNotReadyAddresses": True},
            id="an empty service configuration",
        ),
        pytest.param(
            changed(
                plain(), (f"{T}.cliqueStartupType", ABSENT), ("spec.replicas", ABSENT), ("spec.updateStrategy", {})
            ),
            {
                "spec.replicas": 0,
                "spec.updateStrategy.type": "RollingRecreate",
                f"{T}.cliqueStartupType": "CliqueStartupTypeAnyOrder",
            },
            id="what the schema defaults on a server",
        ),
    ],
)
def test_what_is_left_open_is_filled_in(obj: dict, want: dict) -> None:
    assert added(obj) == want


def test_an_update_without_min_available_keeps_the_stored_minimum() -> None:
    stored = pcs("demo", clique("a", 4, min_available=2))
    sent = changed(stored, (f"{C}.minAvailable", ABSENT), (f"{C}.replicas", 6))
    assert added(sent, stored) == {f"{C}.minAvailable": 2}


def test_the_patch_leaves_unknown_fields_alone() -> None:
    sent = changed(
        plain(), ("spec.future", {"a/b": 1}), (f"{T}.terminationDelay", ABSENT), (f"{C}.minAvailable", ABSENT)
    )
    found = response(Admission(), DEFAULT_SET, review_of(sent))
    assert found["allowed"]
    assert found["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(found["patch"]))
    assert patch == [
        {"op": "add", "path": "/spec/template/cliques/0/spec/minAvailable", "value": 2},
        {"op": "add", "path": "/spec/template/terminationDelay", "value": "4h0m0s"},
    ]
    assert apply_json_patch(sent, patch)["spec"]["future"] == {"a/b": 1}


def test_a_complete_set_needs_no_patch() -> None:
    assert response(Admission(), DEFAULT_SET, review_of(plain())) == {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "allowed": True,
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
PLACES = st.sampled_from(
    [
        "metadata",
        "metadata.namespace",
        "spec",
        "spec.replicas",
        "spec.updateStrategy",
        T,
        f"{T}.cliques",
        f"{T}.cliques.0",
    ]
    + [f"{T}.cliques.0.{x}" for x in ("name", "spec", "spec.podSpec", "spec.replicas", "spec.minAvailable")]
    + [f"{T}.{x}" for x in ("headlessServiceConfig", "terminationDelay", "podCliqueScalingGroups", "cliqueStartupType")]
    + [G, f"{G}.replicas", f"{G}.minAvailable", f"{G}.scaleConfig", f"{C}.autoScalingConfig", f"{C}.roleName"]
)


@given(place=PLACES, value=VALUES | st.just(ABSENT))
def test_filling_in_twice_adds_nothing(place: str, value: object) -> None:
    base = pcs("demo", clique("a", 2, scale={"maxReplicas": 4}), groups=[group("g", "a", scale={"maxReplicas": 4})])
    base["spec"]["updateStrategy"] = {}
    base["spec"]["template"]["cliques"][0]["spec"]["podSpec"].pop("restartPolicy")
    obj = changed(base, (place, value))
    additions = missing_defaults(obj)
    full = with_additions(obj, additions)
    assert missing_defaults(full) == []
    assert apply_json_patch(obj, json_patch(additions)) == full
