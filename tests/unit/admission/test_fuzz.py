"""No JSON makes the rules stumble: every answer is well formed, every refusal names a field."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.mutants import (
    ADMISSION,
    BASE,
    KNOWN,
    VALUES,
    accepted_by_schema,
    check,
    check_set,
    mutated,
    nested,
    rich,
)
from tests.support.reviews import binding, response, review_of

from grove.admission.rules.review import AUTHORIZE, DEFAULT_SET, VALIDATE_BINDING, VALIDATE_SET


@settings(max_examples=800)
@given(obj=mutated())
def test_any_set_gets_an_answer(obj: dict) -> None:
    check_set(obj)


@settings(max_examples=250)
@given(new=mutated(), old=mutated())
def test_any_update_gets_an_answer(new: dict, old: dict) -> None:
    response(ADMISSION, DEFAULT_SET, review_of(new, old))
    check(response(ADMISSION, VALIDATE_SET, review_of(new, old), KNOWN))
    check(response(ADMISSION, VALIDATE_SET, review_of(new, BASE), KNOWN))


@settings(max_examples=200)
@given(obj=mutated(binding()))
def test_any_binding_gets_an_answer(obj: dict) -> None:
    found = response(ADMISSION, VALIDATE_BINDING, review_of(obj), KNOWN)
    check(found)
    if found["allowed"]:
        assert accepted_by_schema("clustertopologybindings.grove.io", obj)


@settings(max_examples=200)
@given(
    request=st.dictionaries(st.sampled_from(["operation", "kind", "object", "oldObject", "userInfo", "name"]), VALUES)
)
def test_any_request_is_judged(request: dict) -> None:
    review = {"request": {**request, "uid": "1"}}
    for path in (AUTHORIZE, DEFAULT_SET, VALIDATE_SET, VALIDATE_BINDING):
        ADMISSION.needs(path, review)
        found = ADMISSION.review(path, review, KNOWN)["response"]
        assert found["uid"] == "1"
        assert isinstance(found["allowed"], bool)


def test_a_thousandfold_nesting_is_a_refusal() -> None:
    obj = rich()
    parameters = nested(3000)
    requests = [{"name": "x"}]
    config = [{"opaque": {"driver": "d", "parameters": parameters}}]
    obj["spec"]["template"]["resourceClaimTemplates"][0]["templateSpec"]["spec"] = {
        "devices": {"requests": requests, "config": config}
    }
    old = copy.copy(obj) | {"spec": {**obj["spec"], "replicas": 9}}
    assert not ADMISSION.needs(VALIDATE_SET, review_of(obj, old)).queues, "it is asked before, and does not stumble"
    found = ADMISSION.review(VALIDATE_SET, review_of(obj, old), KNOWN)["response"]
    if not found["allowed"]:
        assert found["status"]["details"]["causes"] == [
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: "…": the object is nested too deeply',
                "field": "spec",
            }
        ]
