"""The ledger: its changes since a revision, applied to the tables of that revision, give the current tables."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grove.console.ledger import HISTORY, Change, Ledger

NAMES = st.sampled_from(["nodes", "sets"])
KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(st.dictionaries(NAMES, st.dictionaries(KEYS, st.integers(0, 3))), st.dictionaries(NAMES, st.lists(KEYS))),
    max_size=20,
)


def applied(tables: dict[str, dict[str, Any]], change: Change) -> dict[str, dict[str, Any]]:
    """What the page does with a change."""
    now = {} if change.whole else {name: dict(rows) for name, rows in tables.items()}
    for name, rows in change.put.items():
        now.setdefault(name, {}).update(rows)
    for name, keys in change.gone.items():
        for key in keys:
            now.get(name, {}).pop(key, None)
    return {name: rows for name, rows in now.items() if rows}


def tables_of(ledger: Ledger) -> dict[str, dict[str, Any]]:
    return {name: dict(ledger.table(name)) for name in ("nodes", "sets") if ledger.table(name)}


@given(STEPS)
def test_a_viewer_of_any_revision_ends_with_the_tables_as_they_are(steps: Any) -> None:
    ledger = Ledger()
    at: dict[int, dict[str, dict[str, Any]]] = {0: {}}
    for put, gone in steps:
        ledger.record(put, gone)
        at[ledger.revision] = tables_of(ledger)
    for revision, tables in at.items():
        assert applied(tables, ledger.since(revision)) == tables_of(ledger)


def test_a_change_that_changes_nothing_makes_no_revision() -> None:
    ledger = Ledger()
    assert ledger.record({"nodes": {"a": [1]}}, {})
    assert not ledger.record({"nodes": {"a": [1]}}, {"nodes": ["b"]})
    assert ledger.since(ledger.revision).is_empty


def test_replacing_a_table_removes_what_is_no_longer_in_it_and_leaves_others_alone() -> None:
    ledger = Ledger()
    ledger.replace({"nodes": {"a": 1, "b": 2}, "sets": {"x": 1}})
    ledger.replace({"nodes": {"b": 3}})
    assert ledger.since(1) == Change(2, {"nodes": {"b": 3}}, {"nodes": ["a"]})
    assert ledger.table("sets") == {"x": 1}


def test_who_fell_out_of_the_history_gets_everything_again_and_is_reported() -> None:
    ledger = Ledger()
    for number in range(HISTORY + 5):
        ledger.record({"nodes": {"a": number}}, {})
    late = ledger.since(2)
    assert late.whole
    assert late.put == {"nodes": {"a": HISTORY + 4}}
    assert not ledger.since(ledger.revision - 3).whole


def test_a_revision_of_another_life_of_the_server_is_answered_with_everything() -> None:
    ledger = Ledger()
    ledger.record({"nodes": {"a": 1}}, {})
    assert ledger.since(77).whole
