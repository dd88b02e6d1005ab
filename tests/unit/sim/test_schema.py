"""Structural schemas in the simulator: pruning, defaults, and the faults in the API server's words."""

from __future__ import annotations

import pytest

from grove.sim.schema import Structure

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10},
        "ratio": {"type": "number"},
        "size": {"type": "integer", "default": 3},
        "mode": {"type": "string", "enum": ["A", "B"]},
        "port": {"x-kubernetes-int-or-string": True},
        "when": {"type": "string", "format": "date-time"},
        "maybe": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "inner": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}, "default": {}},
        "late": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}},
        "list": {"type": "array", "maxItems": 3, "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
                "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "n never shrinks"}],
            },
        },
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.count) || self.count != 7", "message": "seven is taken", "fieldPath": ".count"}
    ],
}
STRUCTURE = Structure(SCHEMA)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({}, {"size": 3, "inner": {"x": 1}}, id="defaults, also inside a defaulted object"),
        pytest.param({"size": None, "inner": {"x": None}}, {"size": 3, "inner": {"x": 1}}, id="null becomes default"),
        pytest.param({"count": None, "size": 1, "inner": {}}, {"size": 1, "inner": {"x": 1}}, id="null is dropped"),
        pytest.param(
            {"maybe": None, "size": 1, "inner": {"x": 2}},
            {"maybe": None, "size": 1, "inner": {"x": 2}},
            id="a null that is allowed stays",
        ),
        pytest.param(
            {"late": {}, "size": 1, "inner": {"x": 2}},
            {"late": {"x": 1}, "size": 1, "inner": {"x": 2}},
            id="a default waits for its parent",
        ),
        pytest.param(
            {"odd": 1, "size": 1, "inner": {"x": 2, "y": 3}}, {"size": 1, "inner": {"x": 2}}, id="unknown goes"
        ),
        pytest.param(
            {"free": {"odd": {"er": 1}}, "size": 1, "inner": {"x": 2}},
            {"free": {"odd": {"er": 1}}, "size": 1, "inner": {"x": 2}},
            id="unless it may be anything",
        ),
        pytest.param(
            {"labels": {"any": "v"}, "size": 1, "inner": {"x": 2}},
            {"labels": {"any": "v"}, "size": 1, "inner": {"x": 2}},
            id="keys of a map are free",
        ),
        pytest.param(
            {"list": [{"n": 1, "m": 2}], "size": 1, "inner": {"x": 2}},
            {"list": [{"n": 1}], "size": 1, "inner": {"x": 2}},
            id="unknown goes in lists too",
        ),
    ],
)
def test_shape(given, want):
    assert STRUCTURE.shape(given) == want


def test_shape_of_the_shaped_is_the_same_object():
    shaped = STRUCTURE.shape({"name": "a", "list": [{"n": 1}]})

    assert STRUCTURE.shape(shaped) is shaped


def test_defaults_are_not_shared_between_objects():
    first, second = STRUCTURE.shape({}), STRUCTURE.shape({})
    first["inner"]["x"] = 99

    assert second["inner"] == {"x": 1}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"name": "web"}, [], id="all is well"),
        pytest.param({}, [("name", "FieldValueRequired")], id="required"),
        pytest.param({"name": 1}, [("name", "FieldValueTypeInvalid")], id="type"),
        pytest.param({"name": ""}, [("name", "FieldValueInvalid")] * 2, id="too short, and no match"),
        pytest.param({"name": "toolong"}, [("name", "FieldValueInvalid")], id="too long"),
        pytest.param({"name": "a", "count": -1}, [("count", "FieldValueInvalid")], id="minimum"),
        pytest.param({"name": "a", "count": 11}, [("count", "FieldValueInvalid")], id="maximum"),
        pytest.param({"name": "a", "count": 2**40}, [("count", "FieldValueInvalid")] * 2, id="beyond 32 bits"),
        pytest.param({"name": "a", "count": 2.0}, [], id="a whole number in any notation"),
        pytest.param({"name": "a", "ratio": 1}, [], id="an integer is a number"),
        pytest.param({"name": "a", "mode": "C"}, [("mode", "FieldValueNotSupported")], id="not a choice"),
        pytest.param({"name": "a", "port": "http"}, [], id="int or string: string"),
        pytest.param({"name": "a", "port": 80}, [], id="int or string: int"),
        pytest.param({"name": "a", "port": 1.5}, [("port", "FieldValueTypeInvalid")], id="int or string: neither"),
        pytest.param({"name": "a", "when": "2026-01-01T00:00:00Z"}, [], id="a time"),
        pytest.param({"name": "a", "when": "yesterday"}, [("when", "FieldValueInvalid")], id="not a time"),
        pytest.param({"name": "a", "maybe": None}, [], id="an allowed null"),
        pytest.param({"name": "a", "labels": {"k": 1}}, [("labels[k]", "FieldValueTypeInvalid")], id="value of a map"),
        pytest.param({"name": "a", "list": [{"n": "x"}]}, [("list[0].n", "FieldValueTypeInvalid")], id="in a list"),
        pytest.param({"name": "a", "list": [{}] * 4}, [("list", "FieldValueInvalid")], id="too many"),
        pytest.param({"name": "a", "tags": ["x", "x"]}, [("tags[1]", "FieldValueDuplicate")], id="twice in a set"),
        pytest.param(
            {"name": "a", "parts": [{"name": "p"}, {"name": "p"}]},
            [("parts[1]", "FieldValueDuplicate")],
            id="the same key twice",
        ),
        pytest.param({"name": "a", "count": 7}, [("count", "FieldValueInvalid")], id="a broken rule, at its path"),
        pytest.param({"name": 1, "count": 7}, [("name", "FieldValueTypeInvalid")], id="rules wait for sound structure"),
    ],
)
def test_faults(given, want):
    assert [(fault.path, fault.type) for fault in STRUCTURE.faults(given)] == want


def test_a_transition_rule_compares_with_the_item_of_the_same_key():
    old = {"name": "a", "parts": [{"name": "p", "n": 3}, {"name": "q", "n": 5}]}
    moved = {"name": "a", "parts": [{"name": "q", "n": 5}, {"name": "p", "n": 4}, {"name": "new", "n": 0}]}
    shrunk = {"name": "a", "parts": [{"name": "q", "n": 4}, {"name": "p", "n": 3}]}

    assert STRUCTURE.faults(moved, old) == []
    assert [fault.path for fault in STRUCTURE.faults(shrunk, old)] == ["parts[0]"]


def test_what_is_shared_with_the_old_object_is_not_checked_again():
    # As on a real server: what was let in once (by an older schema) does not stand in the way of other changes.
    old = {"name": "a", "list": [{"n": "not a number"}]}

    assert STRUCTURE.faults({"name": "b", "list": old["list"]}, old) == []
    assert STRUCTURE.faults({"name": "b", "list": [{"n": "another word"}]}, old) != []
