"""Tables fit their width: the last column is cut, columns that may go are left out first."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from grove.show.columns import indented, table


def shown(renderable: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return [line.rstrip() for line in out.getvalue().splitlines()]


ROWS = [("chat", "1/1", "z0", "there is no room for it in any rack of the cluster"), ("b", "10/12", "z0-b1", "")]
TITLES = ("NAME", "READY", "WHERE", "WHY")


@pytest.mark.parametrize(
    ("width", "want"),
    [
        pytest.param(
            80,
            [
                "NAME  READY  WHERE  WHY",
                "chat    1/1  z0     there is no room for it in any rack of the cluster",
                "b     10/12  z0-b1",
            ],
            id="room for all",
        ),
        pytest.param(
            50,
            ["NAME  READY  WHERE  WHY", "chat    1/1  z0     there is no room for it in an…", "b     10/12  z0-b1"],
            id="the last column is cut",
        ),
        pytest.param(
            40,
            ["NAME  READY  WHY", "chat    1/1  there is no room for it in…", "b     10/12"],
            id="a column goes before the reason gets unreadable",
        ),
    ],
)
def test_table(width, want):
    assert shown(table(TITLES, ROWS, width, may_go=("WHERE",), right=("READY",)), width) == want


def test_a_sentence_is_set_in_on_every_line():
    assert [line.plain for line in indented("next: lower the minimum of the clique by one", 30)] == [
        "    next: lower the minimum of",
        "      the clique by one",
    ]
