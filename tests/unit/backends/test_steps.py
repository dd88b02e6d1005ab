"""What to do about one object beside a gang, and that what was said before is taken back when it is said no more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api.labels import LAST_WRITTEN
from grove.api.meta import Json
from grove.backends.steps import merged, remembering, step_for, taking_back
from grove.operator.shared.diff import Ownership, needed_patch

WANTED = {"kind": "PodGroup", "metadata": {"name": "g"}}
OURS = {"metadata": {"ownerReferences": [{"uid": "u", "controller": True}]}}
LEAVING = {"metadata": {**OURS["metadata"], "deletionTimestamp": "now"}}


@pytest.mark.parametrize(
    ("live", "patch", "frozen", "in_use", "want"),
    [
        pytest.param(None, None, True, True, "create", id="not there"),
        pytest.param({"metadata": {}}, None, True, True, "conflict", id="nobody's is not ours"),
        pytest.param(OURS, None, True, True, "nothing", id="as wanted"),
        pytest.param(OURS, {"metadata": {"labels": {}}}, True, True, "patch", id="metadata of a frozen one"),
        pytest.param(OURS, {"spec": {"x": 1}}, False, True, "patch", id="spec of one that can change"),
        pytest.param(OURS, {"spec": {"x": 1}}, True, False, "replace", id="frozen, and nobody leans on it"),
        pytest.param(OURS, {"spec": {"x": 1}}, True, True, "keep", id="frozen with pods in it"),
        pytest.param(LEAVING, {"spec": {"x": 1}}, True, False, "wait", id="on its way out"),
    ],
)
def test_what_to_do_about_an_object(
    live: Json | None, patch: Json | None, frozen: bool, in_use: bool, want: str
) -> None:
    assert step_for(WANTED, live, "u", patch, frozen=frozen, in_use=in_use).act == want


@pytest.mark.parametrize(
    ("patch", "want"),
    [
        pytest.param({"metadata": {"annotations": {"g": "new"}}}, "replace", id="what is read once"),
        pytest.param({"metadata": {"annotations": {"h": "new"}}, "spec": {"x": 1}}, "patch", id="something else"),
        pytest.param({"metadata": {"labels": {"g": "new"}}}, "patch", id="the same name elsewhere"),
    ],
)
def test_a_change_of_what_is_read_only_once_makes_the_object_again(patch: Json, want: str) -> None:
    fixed = (("metadata", "annotations", "g"),)
    assert step_for(WANTED, OURS, "u", patch, frozen=False, in_use=True, fixed=fixed).act == want


@pytest.mark.parametrize(
    ("patch", "frozen", "in_use", "want"),
    [
        pytest.param(None, True, False, "", id="as wanted, so somebody else deleted it"),
        pytest.param({"metadata": {"labels": {"a": "b"}}}, True, False, "", id="a label differs"),
        pytest.param({"spec": {"x": 1}}, False, False, "", id="a spec that could have been changed"),
        pytest.param({"spec": {"x": 1}}, True, False, "Replacing", id="a spec that is made anew"),
        pytest.param({"spec": {"x": 1}}, True, True, "", id="one that its pods keep"),
        pytest.param({"metadata": {"annotations": {"g": "new"}}}, False, True, "Replacing", id="what is read once"),
    ],
)
def test_an_object_on_its_way_out_is_being_replaced_if_it_differs(
    patch: Json | None, frozen: bool, in_use: bool, want: str
) -> None:
    fixed = (("metadata", "annotations", "g"),)
    step = step_for(WANTED, LEAVING, "u", patch, frozen=frozen, in_use=in_use, fixed=fixed)
    assert (step.act, step.patch, step.reason) == ("wait", None, want)


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param({"labels": {"a": "b"}}, {"metadata": {"labels": {"a": "b"}}}, id="labels may change"),
        pytest.param({"annotations": {LAST_WRITTEN: "x"}}, None, id="the memory of what the spec says may not"),
        pytest.param(
            {"annotations": {LAST_WRITTEN: "x", "a": "b"}}, {"metadata": {"annotations": {"a": "b"}}}, id="both"
        ),
    ],
)
def test_what_a_frozen_object_in_use_still_takes(metadata: Json, want: Json | None) -> None:
    step = step_for(WANTED, OURS, "u", {"spec": {"x": 1}, "metadata": metadata}, frozen=True, in_use=True)
    assert (step.act, step.patch, step.reason) == ("keep", want, "GangSpecDrift")


def obj(spec: Json, **metadata: Json) -> Json:
    return {"kind": "PodGroup", "metadata": {"name": "g", **metadata}, "spec": spec}


LEAF, PACKED = {"name": "a"}, {"name": "a", "topologyConstraint": {"topology": "t"}}


@pytest.mark.parametrize(
    ("before", "after", "foreign", "want"),
    [
        pytest.param({"queue": "q"}, {"queue": "q"}, {}, {}, id="nothing changed"),
        pytest.param(
            {"queue": "q", "priorityClassName": "p"}, {"queue": "q"}, {}, {"priorityClassName": None}, id="a field went"
        ),
        pytest.param({"queue": "q"}, {"queue": "q"}, {"markUnschedulable": True}, {}, id="somebody else's stays"),
        pytest.param(
            {"topologyConstraint": {"required": "x", "preferred": "y"}},
            {"topologyConstraint": {"required": "x"}},
            {},
            {"topologyConstraint": {"preferred": None}},
            id="a field of a field went",
        ),
        pytest.param(
            {"subGroups": [PACKED]}, {"subGroups": [LEAF]}, {}, {"subGroups": [LEAF]}, id="a field of an item"
        ),
        pytest.param({"subGroups": [LEAF]}, {"subGroups": [LEAF]}, {}, {}, id="the same items"),
        pytest.param({"ref": {"name": "w"}}, {}, {}, {}, id="what is said once is not taken back"),
    ],
)
def test_what_is_taken_back(before: Json, after: Json, foreign: Json, want: Json) -> None:
    once = (("spec", "ref"),)
    live = remembering(obj(before), once)
    live = {**live, "spec": {**live["spec"], **foreign}}
    assert taking_back(remembering(obj(after), once), live).get("spec", {}) == want


def test_labels_and_annotations_are_taken_back_too_and_others_keep_theirs() -> None:
    live = remembering(obj({}, labels={"a": "1", "b": "2"}, annotations={"c": "3"}))
    live["metadata"]["labels"] = {**live["metadata"]["labels"], "theirs": "x"}
    found = taking_back(remembering(obj({}, labels={"a": "1"})), live)
    assert found == {"metadata": {"labels": {"b": None}, "annotations": {"c": None}}}


@pytest.mark.parametrize("memory", ["", "{", "[]", '"x"'])
def test_a_memory_that_a_person_spoiled_takes_nothing_back(memory: str) -> None:
    live = obj({"queue": "q"}, annotations={LAST_WRITTEN: memory})
    assert taking_back(remembering(obj({})), live) == {}


fields = st.dictionaries(
    st.sampled_from("abcd"), st.integers(1, 3) | st.lists(st.integers(1, 2), min_size=1), max_size=4
)
specs = st.dictionaries(st.sampled_from("wxyz"), fields | st.integers(1, 3), max_size=4)


def patched(live: Any, patch: Any) -> Any:
    """A JSON merge patch, applied."""
    if not isinstance(patch, dict):
        return patch
    found = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = patched(found.get(name), value)
    return found


@given(before=specs, after=specs)
def test_after_any_change_the_object_is_as_if_made_again_and_nothing_is_left_to_do(before: Json, after: Json) -> None:
    live, wanted = remembering(obj(before)), remembering(obj(after))

    def needed(now: Json) -> Json | None:
        return merged(needed_patch(wanted, now, Ownership(exact=())), taking_back(wanted, now))

    live = patched(live, needed(live) or {})
    assert _without_empty(live) == _without_empty(wanted)
    assert needed(live) is None


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: one for name, old in value.items() if (one := _without_empty(old)) != {}}
