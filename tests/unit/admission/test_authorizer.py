"""Who may touch what Grove manages."""

from __future__ import annotations

import pytest

from grove.admission.rules.authorizer import Authorizer, Verdict, exempt_users
from grove.admission.rules.lookups import Known
from grove.api.meta import Key

OPERATOR = "system:serviceaccount:grove-system:grove-operator"
DYNAMO = "system:serviceaccount:dynamo-system:dynamo-operator"
GUARD = Authorizer(frozenset({OPERATOR}), exempt_users("grove-system", [DYNAMO]))
SETS = Known(
    sets={
        Key("default", "demo"): {"metadata": {"name": "demo"}},
        Key("default", "open"): {"metadata": {"annotations": {"grove.io/disable-managed-resource-protection": "true"}}},
        Key("default", "almost"): {
            "metadata": {"annotations": {"grove.io/disable-managed-resource-protection": "True"}}
        },
        Key("default", "broken"): ConnectionError("connection refused"),
    }
)


def request(operation: str, kind: str = "PodClique", user: str = "jane", owner: str = "demo", **fields: object) -> dict:
    labels = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": owner}
    obj = {"metadata": {"name": "demo-0-a", "namespace": "default", "labels": labels if owner else {}}}
    group = {"PodClique": "grove.io", "PodGang": "scheduler.grove.io"}.get(kind, "")
    return {
        "uid": "1",
        "operation": operation,
        "kind": {"group": group, "kind": kind},
        "name": "demo-0-a",
        "namespace": "default",
        "userInfo": {"username": user},
        "object": obj if operation != "DELETE" else None,
        "oldObject": obj if operation != "CREATE" else None,
        **fields,
    }


def denied(operation: str, kind: str, owner: str = "demo", user: str = "jane") -> Verdict:
    return Verdict(
        False,
        f'{operation} of {kind} demo-0-a is denied for user "{user}": it is managed by Grove. Change PodCliqueSet '
        f'default/{owner}, or set its annotation grove.io/disable-managed-resource-protection to "true"',
        code=403,
    )


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param(request("CONNECT"), Verdict(True), id="a connection"),
        pytest.param(
            request("UPDATE", oldObject=None),
            Verdict(False, "the object of the request could not be decoded", code=400),
            id="an object that is none",
        ),
        pytest.param(
            request("PATCHED"),
            Verdict(False, "operation 'PATCHED' is not supported on managed resources", code=500),
            id="an operation nobody knows",
        ),
        pytest.param(
            request("UPDATE", owner=""),
            Verdict(
                True,
                warning="PodClique demo-0-a: label app.kubernetes.io/part-of is missing, the object is not protected",
            ),
            id="an object of nobody",
        ),
        pytest.param(
            request("UPDATE", owner="gone"),
            Verdict(
                True,
                warning="PodClique demo-0-a: PodCliqueSet default/gone does not exist, the object is not protected",
            ),
            id="a set that is gone",
        ),
        pytest.param(
            request("UPDATE", owner="broken"),
            Verdict(False, "PodCliqueSet default/broken could not be read: connection refused", code=500),
            id="a set that cannot be read",
        ),
        pytest.param(request("UPDATE", owner="open"), Verdict(True), id="protection switched off"),
        pytest.param(
            request("UPDATE", owner="almost"),
            denied("update", "PodClique", "almost"),
            id="only exactly true switches off",
        ),
        pytest.param(request("CREATE", user=OPERATOR), Verdict(True), id="the operator creates"),
        pytest.param(request("UPDATE", user=OPERATOR, owner="broken"), Verdict(True), id="the operator never waits"),
        pytest.param(request("UPDATE", "Pod", DYNAMO), Verdict(True), id="an exempt user changes a pod's labels"),
        pytest.param(request("DELETE", "Pod", DYNAMO), Verdict(True), id="an exempt user deletes a pod"),
        pytest.param(request("DELETE", user=DYNAMO), Verdict(True), id="an exempt user deletes"),
        pytest.param(request("CREATE"), denied("create", "PodClique"), id="anyone creates"),
        pytest.param(request("UPDATE", "Pod"), denied("update", "Pod"), id="anyone changes a pod"),
        pytest.param(request("DELETE", "Pod"), Verdict(True), id="anyone deletes a pod"),
        pytest.param(request("DELETE"), denied("delete", "PodClique"), id="anyone deletes"),
        pytest.param(
            request("DELETE", "PodGang", "kubernetes-admin"),
            denied("delete", "PodGang", user="kubernetes-admin"),
            id="an administrator deletes",
        ),
        pytest.param(request("UPDATE", subResource="scale"), Verdict(True), id="scaling always passes"),
        pytest.param(
            request("UPDATE", object={"metadata": {"labels": {}}}),
            denied("update", "PodClique"),
            id="stripping the label",
        ),
        *[
            pytest.param(request("UPDATE", "Pod", user), Verdict(True), id=f"{user} is exempt by default")
            for user in (
                "system:serviceaccount:grove-system:grove-scheduler",
                "system:serviceaccount:kai-scheduler:pod-grouper",
                "system:serviceaccount:kai-scheduler:binder",
                "system:serviceaccount:koordinator-system:koord-scheduler",
                "system:serviceaccount:volcano-system:volcano-scheduler",
                "system:serviceaccount:kube-system:generic-garbage-collector",
                "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
                "system:kube-controller-manager",
            )
        ],
    ],
)
def test_a_request_is_judged(asked: dict, want: Verdict) -> None:
    assert GUARD.authorize(asked, SETS) == want


def test_trusted_requests_need_no_look_at_the_set() -> None:
    assert GUARD.owner_to_look_up(request("UPDATE", user=OPERATOR)) is None
    assert GUARD.owner_to_look_up(request("DELETE", "Pod")) is None
    assert GUARD.owner_to_look_up(request("UPDATE")) == Key("default", "demo")


def test_another_groups_pod_is_not_a_pod() -> None:
    asked = request("DELETE", "Pod") | {"kind": {"group": "example.com", "kind": "Pod"}}
    assert GUARD.authorize(asked, SETS).allowed is False


@pytest.mark.parametrize(
    ("kind", "annotations", "more", "allowed"),
    [
        pytest.param("Pod", {"grove.io/deletion-cost": "5"}, {}, True, id="a cost"),
        pytest.param("Pod", {"grove.io/restart-requested": "true"}, {}, True, id="a restart"),
        pytest.param("PodGang", {"grove.io/move-to": "{}"}, {}, True, id="a move of a gang"),
        pytest.param("PodGang", {"grove.io/gang-mapping": "x"}, {}, False, id="another annotation of a gang"),
        pytest.param(
            "Pod", {"grove.io/deletion-cost": "5", "mine": "1"}, {}, False, id="a cost and another annotation"
        ),
        pytest.param("Pod", {"grove.io/draining": "2026-01-01T00:00:00Z"}, {}, False, id="a mark of the operator"),
        pytest.param("Pod", {"grove.io/deletion-cost": "5"}, {"spec": {}}, False, id="a cost and the spec"),
        pytest.param("PodClique", {"grove.io/deletion-cost": "5"}, {}, False, id="not a pod"),
    ],
)
def test_what_anyone_may_ask_of_a_pod(kind: str, annotations: dict, more: dict, allowed: bool) -> None:
    asked = request("UPDATE", kind)
    metadata = {**asked["oldObject"]["metadata"], "annotations": annotations, "resourceVersion": "2"}
    asked["object"] = {**asked["oldObject"], "metadata": metadata, **more}
    assert GUARD.authorize(asked, SETS).allowed is allowed
