"""Label and field selectors: the text forms, and what matches."""

from __future__ import annotations

import pytest

from grove.api import selector
from grove.api.pod import LabelSelector, SelectorRequirement
from grove.api.selector import InvalidSelector

WEB = {"app": "web", "tier": "front", "zone": "3"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", True, id="no selector matches everything"),
        pytest.param("app=web", True, id="equal"),
        pytest.param("app==web", True, id="equal, spelled twice"),
        pytest.param("app=db", False, id="another value"),
        pytest.param("app!=db", True, id="not equal"),
        pytest.param("owner!=me", True, id="not equal holds for an absent key"),
        pytest.param("app in (db, web)", True, id="one of"),
        pytest.param("app notin (db,web)", False, id="none of"),
        pytest.param("owner notin (me)", True, id="none of holds for an absent key"),
        pytest.param("app", True, id="present"),
        pytest.param("owner", False, id="not present"),
        pytest.param("!owner", True, id="absent"),
        pytest.param("!app", False, id="not absent"),
        pytest.param("zone>2", True, id="greater"),
        pytest.param("zone<3", False, id="not less"),
        pytest.param("tier>1", False, id="a word is not greater than a number"),
        pytest.param("app=web,tier=front", True, id="all of several"),
        pytest.param("app=web, tier=back", False, id="not all of several"),
        pytest.param("app in (web),!owner , zone", True, id="all forms mixed"),
        pytest.param("owner=", False, id="an empty value is not an absent key"),
        pytest.param("inner=1", False, id="a key that begins like an operator"),
    ],
)
def test_text(text: str, want: bool) -> None:
    assert selector.parse(text).matches(WEB) is want


@pytest.mark.parametrize("text", ["app=web,", ",app", "app in web", "app in (a", "=web", "app=a=b", "a b", "!"])
def test_what_is_not_a_selector_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector):
        selector.parse(text)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(None, False, id="no selector matches nothing"),
        pytest.param(LabelSelector(), True, id="an empty one matches everything"),
        pytest.param(LabelSelector(match_labels={"app": "web"}), True, id="labels"),
        pytest.param(LabelSelector(match_labels={"app": "web", "tier": "back"}), False, id="all labels must match"),
        pytest.param(
            LabelSelector(
                match_labels={"app": "web"},
                match_expressions=(SelectorRequirement(key="tier", operator="NotIn", values=("back",)),),
            ),
            True,
            id="labels and expressions",
        ),
        pytest.param(
            LabelSelector(match_expressions=(SelectorRequirement(key="app", operator="DoesNotExist"),)),
            False,
            id="an expression that fails",
        ),
    ],
)
def test_object(given: LabelSelector | None, want: bool) -> None:
    assert selector.of(given).matches(WEB) is want


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(InvalidSelector, match="Around"):
        selector.of(LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="Around"),)))


def test_labels_as_a_selector() -> None:
    assert selector.of_labels({"app": "web"}).matches(WEB)
    assert not selector.of_labels({"app": "web", "x": "y"}).matches(WEB)


POD = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "unschedulable": True}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", True, id="no selector"),
        pytest.param("metadata.name=a", True, id="equal"),
        pytest.param("metadata.name==a,spec.nodeName=n1", True, id="several"),
        pytest.param("status.phase!=Running", False, id="not equal"),
        pytest.param("spec.hostname=", True, id="an absent field is empty"),
        pytest.param("spec.unschedulable=true", True, id="a boolean is spelled as JSON does"),
    ],
)
def test_fields(text: str, want: bool) -> None:
    assert all(requirement.matches(POD) for requirement in selector.parse_fields(text)) is want


@pytest.mark.parametrize("text", ["metadata.name", "=a"])
def test_what_is_not_a_field_selector_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelector):
        selector.parse_fields(text)
