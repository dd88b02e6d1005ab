"""Rights against use: a right counts as used only by its own component, verb, resource and object."""

from __future__ import annotations

from typing import Any

import pytest
from tests.rbac.held import HELD
from tests.rbac.rights import Right, Use, accounts, documents, granted, unused, use_of

USERS = {"operator": "system:serviceaccount:grove-system:grove-operator"}
PATCH_PODS = Right("operator", "", "pods", "patch")
NAMED = Right("operator", "apiextensions.k8s.io", "customresourcedefinitions", "get", ("a", "b"))


def event(**fields: Any) -> dict[str, Any]:
    return {
        "verb": "patch", "user": {"username": USERS["operator"]}, "userAgent": "grove-operator",
        "objectRef": {"resource": "pods", "name": "p"}, "annotations": {"authorization.k8s.io/decision": "allow"},
        **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "use"),
    [
        pytest.param({}, Use("operator", "", "pods", "patch", "p"), id="an account by its name"),
        pytest.param(
            {"user": {"username": "admin"}, "impersonatedUser": {"username": USERS["operator"]}},
            Use("operator", "", "pods", "patch", "p"), id="an account that a test acts as",
        ),
        pytest.param(
            {"user": {"username": "admin"}}, Use("operator", "", "pods", "patch", "p"),
            id="a process by what it says it is"
        ),
        pytest.param(
            {"user": {"username": "admin"}, "userAgent": "kubectl/v1.36"}, None, id="a person is none of ours"
        ),
        pytest.param(
            {"objectRef": {"apiGroup": "grove.io", "resource": "podcliques", "subresource": "status", "name": "c"}},
            Use("operator", "grove.io", "podcliques/status", "patch", "c"), id="a subresource is a resource of its own",
        ),
        pytest.param(
            {"annotations": {"authorization.k8s.io/decision": "forbid"}}, None, id="what was refused is not a use"
        ),
        pytest.param({"objectRef": None}, None, id="a question about the server is about no resource"),
    ],
)  # fmt: skip
def test_a_line_of_the_log(fields: dict[str, Any], use: Use | None) -> None:
    assert use_of(event(**fields), USERS) == use


@pytest.mark.parametrize(
    ("right", "use", "is_used"),
    [
        pytest.param(PATCH_PODS, Use("operator", "", "pods", "patch"), True, id="used"),
        pytest.param(PATCH_PODS, Use("operator", "", "pods", "delete"), False, id="another verb"),
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


def test_rights_held_without_use_are_granted_and_say_why() -> None:
    there = {str(right) for right in granted(documents())}
    assert [text for text in HELD if text not in there] == []
    assert all(len(why) > 20 for why in HELD.values())


def test_no_right_is_for_everything() -> None:
    wide = [right for right in granted(documents()) if "*" in (right.group, right.resource, right.verb)]
    assert wide == []
