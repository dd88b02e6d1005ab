"""The CEL rules of CRDs in the simulator: their values, and the error for each feature that is not covered."""

from __future__ import annotations

import pytest

from grove.crds import load
from grove.sim.cel import ABSENT, CelError, Optional, UnknownRule, compile_rule

SELF = {"a": 1, "name": "web-0", "list": [{"n": 1}, {"n": 2}], "deep": {"x": True}, "tags": ["x", "y"]}


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        pytest.param("has(self.a)", True, id="has a field"),
        pytest.param("has(self.b)", False, id="has not a field"),
        pytest.param("!has(self.b) || self.b > 1", True, id="short circuit guards the field"),
        pytest.param("self.b > 1 || self.a == 1", True, id="a true side decides, whichever it is"),
        pytest.param("self.b > 1 && self.a == 2", False, id="a false side decides, whichever it is"),
        pytest.param("has(self.deep.x) && self.deep.x", True, id="deep fields"),
        pytest.param("self.list.all(i, i.n > 0)", True, id="all"),
        pytest.param("self.list.all(i, i.n > 1)", False, id="not all"),
        pytest.param("self.list.exists(i, i.n == 2)", True, id="exists"),
        pytest.param("self.list.exists_one(i, i.n > 0)", False, id="exactly one"),
        pytest.param("self.list.map(i, i.n) == [1, 2]", True, id="map"),
        pytest.param("size(self.list.filter(i, i.n > 1)) == 1", True, id="filter and size"),
        pytest.param("self.list.size() == 2", True, id="size as a method"),
        pytest.param("self.list[1].n", 2, id="index"),
        pytest.param("'x' in self.tags", True, id="in a list"),
        pytest.param("'a' in self", True, id="in an object"),
        pytest.param("self.name.startsWith('web') && self.name.endsWith(\"0\")", True, id="string ends"),
        pytest.param("self.name.matches('^[a-z]+-[0-9]$')", True, id="matches"),
        pytest.param("self.name.contains('zzz')", False, id="contains"),
        pytest.param("self.a == 1 ? 'one' : 'other'", "one", id="ternary"),
        pytest.param("1 + 2 * 3 - 4 / 2", 5, id="arithmetic and precedence"),
        pytest.param("-7 / 2", -3, id="division cuts towards zero"),
        pytest.param("-7 % 2", -1, id="remainder has the sign of the dividend"),
        pytest.param("(1 + 2) * 3 == 9 && !false", True, id="parentheses"),
        pytest.param("self.?b.orValue(5)", 5, id="optional field"),
        pytest.param("self.?a.hasValue()", True, id="optional field that is there"),
    ],
)
def test_rules(rule, want):
    assert compile_rule(rule)({"self": SELF}) == want


def test_an_optional_old_value():
    rule = compile_rule("oldSelf.hasValue() || self.a == 2")

    assert rule({"self": {"a": 1}, "oldSelf": Optional({"a": 1}, True)}) is True
    assert rule({"self": {"a": 1}, "oldSelf": ABSENT}) is False


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("self.a.explode()", id="unknown method"),
        pytest.param("int(self.a) > 1", id="unknown function"),
        pytest.param("self.a >", id="ends too early"),
        pytest.param("self.a self.b", id="two expressions"),
        pytest.param("self.a @ 1", id="unknown operator"),
        pytest.param("has(self)", id="has of a variable"),
        pytest.param("has(self.list[0])", id="has of an index"),
    ],
)
def test_what_is_not_covered_fails_when_it_is_compiled(rule):
    with pytest.raises(UnknownRule):
        compile_rule(rule)


def test_a_missing_field_is_an_error_of_the_evaluation():
    with pytest.raises(CelError):
        compile_rule("self.b > 1")({"self": SELF})


def test_every_rule_of_our_own_definitions_is_covered():
    rules = []

    def collect(node):
        if isinstance(node, dict):
            rules.extend(r["rule"] for r in node.get("x-kubernetes-validations") or ())
            for child in node.values():
                collect(child)
        elif isinstance(node, list):
            for child in node:
                collect(child)

    collect(load())
    assert len(rules) >= 6
    for rule in rules:
        compile_rule(rule)
