"""Merge patch and JSON patch in the simulator: results, errors, and inputs that stay unchanged."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.kube.errors import BadRequest, Invalid
from grove.sim.patch import apply_patch, copy_json, json_patch, merge_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc/~"), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("document", "patch", "want"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="replace a value"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="add a key"),
        pytest.param({"a": "b"}, {"a": None}, {}, id="null removes"),
        pytest.param({"a": "b"}, {"z": None}, {"a": "b"}, id="null for what is not there"),
        pytest.param({"a": ["b"]}, {"a": ["c", "d"]}, {"a": ["c", "d"]}, id="lists are replaced whole"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="objects merge"),
        pytest.param({"a": [{"b": 1}]}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}, id="a list becomes an object"),
        pytest.param({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="nulls inside new objects are not kept"),
        pytest.param(["a"], {"a": "c"}, {"a": "c"}, id="no object becomes one"),
        pytest.param({"a": 1}, ["b"], ["b"], id="a patch that is no object replaces all"),
    ],
)
def test_merge_patch(document, patch, want):
    assert merge_patch(document, patch) == want


def test_merge_patch_shares_what_it_does_not_touch():
    document = {"spec": {"big": [1, 2, 3]}, "status": {"a": 1, "b": {"c": 2}}}
    merged = merge_patch(document, {"status": {"a": 2}})

    assert merged["spec"] is document["spec"]
    assert merged["status"]["b"] is document["status"]["b"]


def test_a_patch_is_not_shared_with_the_result():
    patch = {"a": {"list": [1]}}
    merged = merge_patch({}, patch)
    patch["a"]["list"].append(2)

    assert merged == {"a": {"list": [1]}}


@given(JSON, JSON)
def test_merge_patch_leaves_its_inputs_alone_and_is_idempotent(document, patch):
    before, patch_before = copy.deepcopy(document), copy.deepcopy(patch)
    once = merge_patch(document, patch)

    assert (document, patch) == (before, patch_before)
    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("document", "operations", "want"),
    [
        pytest.param({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add a key"),
        pytest.param({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}, id="insert"),
        pytest.param({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="append"),
        pytest.param({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}, id="remove from a list"),
        pytest.param({"a": {"b": 1}}, [{"op": "remove", "path": "/a/b"}], {"a": {}}, id="remove a key"),
        pytest.param({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 3}], {"a": [1, 3]}, id="replace"),
        pytest.param({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}, id="move"),
        pytest.param({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}, id="copy"),
        pytest.param({"a/b": 1}, [{"op": "replace", "path": "/a~1b", "value": 2}], {"a/b": 2}, id="slash in a key"),
        pytest.param({"a~b": 1}, [{"op": "remove", "path": "/a~0b"}], {}, id="tilde in a key"),
        pytest.param({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}, id="a test that holds"),
    ],
)
def test_json_patch(document, operations, want):
    before = copy.deepcopy(document)
    assert json_patch(document, operations) == want
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "remove", "path": "/nothing"}, id="no such key"),
        pytest.param({"op": "remove", "path": "/list/5"}, id="beyond the list"),
        pytest.param({"op": "add", "path": "/list/5", "value": 1}, id="adding beyond the list"),
        pytest.param({"op": "add", "path": "/a/b", "value": 1}, id="a key of a number"),
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="a test that fails"),
        pytest.param({"op": "move", "from": "/nothing", "path": "/b"}, id="moving what is not there"),
    ],
)
def test_json_patch_refuses(operation):
    with pytest.raises(Invalid):
        json_patch({"a": 1, "list": [1]}, [operation])


@pytest.mark.parametrize("operation", [{"op": "explode", "path": "/a"}, {"op": "add", "path": "a", "value": 1}])
def test_json_patch_that_makes_no_sense(operation):
    with pytest.raises(BadRequest):
        json_patch({"a": 1}, [operation])


def test_an_object_must_stay_an_object():
    with pytest.raises(BadRequest):
        apply_patch({"metadata": {"name": "a"}}, [{"op": "remove", "path": "/metadata"}])


@given(JSON)
def test_a_copy_is_equal_and_shares_no_container(document):
    def containers(value, found):
        if isinstance(value, (dict, list)):
            found.append(id(value))
            for item in value.values() if isinstance(value, dict) else value:
                containers(item, found)
        return found

    copied = copy_json(document)
    assert copied == document
    assert not set(containers(copied, [])) & set(containers(document, []))
