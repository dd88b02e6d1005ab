"""Rights against use: a right counts as used only by its own component, verb, resource and object."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rbac.held import HELD, Held, reason
from tests.rbac.rights import Right, Use, accounts, documents, granted, unused, use_of

USERS = {"operator": "system:serviceaccount:grove-system:grove-operator"}
PATCH_PODS = Right("operator", "", "pods", "patch")
NAMED = Right("operator", "apiextensions.k8s.io", "customresourcedefinitions", "get", ("a", "b"))


def event(**fields: Any) -> dict[str, Any]:
    return {
        "verb": "patch",
        "user": {"username": USERS["operator"]},
        "userAgent": "grove-operator",
        "objectRef": {"resource": "pods", "name": "p"},
        "annotations": {"authorization.k8s.io/decision": "allow"},
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        pytest.param({}, Use("operator", "", "pods", "patch", "p"), id="an account by its name"),
        pytest.param(
            {"user": {"username": "admin"}, "impersonatedUser": {"username": USERS["operator"]}},
            Use("operator", "", "pods", "patch", "p"),
            id="an account that a test acts as",
        ),
        pytest.param(
            {"user": {"username": "admin"}},
            Use("operator", "", "pods", "patch", "p"),
            id="a process by what it says it is",
        ),
        pytest.param(
            {"user": {"username": "admin"}, "userAgent": "kubectl/v1.36"}, None, id="a person is none of ours"
        ),
        pytest.param(
            {"objectRef": {"apiGroup": "grove.io", "resource": "podcliques", "subresource": "status", "name": "c"}},
            Use("operator", "grove.io", "podcliques/status", "patch", "c"),
            id="a subresource is a resource of its own",
        ),
        pytest.param(
            {"annotations": {"authorization.k8s.io/decision": "forbid"}}, None, id="what was refused is not a use"
        ),
        pytest.param({"objectRef": None}, None, id="a question about the server is about no resource"),
    ],
)
def test_a_line_of_the_log(fields: dict[str, Any], use: Use | None) -> None:
    assert use_of(event(**fields), USERS) == use


@pytest.mark.parametrize(
    ("right", "use", "is_used"),
    [
        pytest.param(PATCH_PODS, Use("operator", "", "pods", "patch"), True, id="used"),
        pytest.param(PATCH_PODS, Use("operator", "", "pods", "delete"), False, id="another verb"),
        pytest.param(Right("operator", "", "pods", "list"), Use("operator", "", "pods", "watch"), True, id="followed"),
        pytest.param(
            Right("operator", "", "pods", "watch"), Use("operator", "", "pods", "list"), False, id="only listed"
        ),
        pytest.param(PATCH_PODS, Use("scheduler", "", "pods", "patch"), False, id="another component"),
        pytest.param(PATCH_PODS, Use("operator", "", "pods/status", "patch"), False, id="a subresource"),
        pytest.param(PATCH_PODS, Use("operator", "metrics.k8s.io", "pods", "patch"), False, id="another group"),
        pytest.param(NAMED, Use("operator", NAMED.group, NAMED.resource, "get", "b"), True, id="one of its objects"),
        pytest.param(NAMED, Use("operator", NAMED.group, NAMED.resource, "get", "c"), False, id="another object"),
    ],
)
def test_a_right_is_used(right: Right, use: Use, is_used: bool) -> None:
    assert (unused([right], [use]) == []) == is_used


def test_every_component_has_an_account_and_rights() -> None:
    objects = documents()
    assert set(accounts(objects)) == {"operator", "scheduler", "metrics", "uninstall"}
    assert {right.component for right in granted(objects)} == set(accounts(objects))


@pytest.mark.parametrize("held", HELD, ids=lambda held: held.why[:40])
def test_what_is_held_without_use_is_granted(held: Held) -> None:
    found = [right for right in granted(documents()) if held.covers(right)]
    assert {right.verb for right in found} == set(held.verbs.split()), "a reason for a right that is not there is stale"


def test_a_right_without_a_reason_has_none() -> None:
    assert reason(Right("operator", "", "pods/status", "get"))
    assert not reason(Right("scheduler", "", "pods/status", "get"))
    assert not reason(Right("operator", "", "secrets", "list"))


def test_no_right_is_for_everything() -> None:
    wide = [right for right in granted(documents()) if "*" in (right.group, right.resource, right.verb)]
    assert wide == []
