"""The live screen as a value: keys move it, it draws exactly the lines there are, and search narrows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from grove.cli.top_screen import split_keys
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.processes import DOWN, Process, Processes
from grove.show.figures import Figure
from grove.show.overview import Row
from grove.show.top import Gang, Model, Screen, Trend, Wanted, draw, press, shown

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(name: str, state: str = "running", why: str = "") -> Row:
    return Row("ns", name, state, why, 1, 1, 1, 4, 4, 32, 32, 0, 0, (), NOW, "nvidia.com/gpu")


SETS = [row("wide", "waiting", "no rack has capacity"), *(row(f"s{i}") for i in range(40))]
AT = NOW.timestamp()
TRENDS = [
    Trend("", "", Figure("waiting", "gangs that wait"), [(AT - 3600, 0.0), (AT - 1800, 4.0), (AT - 900, 1.0)]),
    Trend("ns", "s3", Figure("kv", "KV cache in use", "%"), [(AT - 1800, 0.5)]),
    Trend("ns", "s3", Figure("restarts", "gang restarts", counts=True), [(AT - 3600, 7.0), (AT - 60, 9.0)]),
]
WAITS = Gang("ns", Verdict("wide-0", "waiting", "gang", "no rack has capacity"), "", None, 5)
MODEL = Model(SETS, [WAITS], now=NOW, trends=TRENDS)


def after(*keys: str, model: Model = MODEL, height: int = 24) -> tuple[Screen, Wanted | None]:
    screen, wanted = Screen(), None
    for key in keys:
        screen, wanted = press(screen, key, model, height)
    return screen, wanted


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        pytest.param(("down", "down", "up"), Screen(at=1), id="arrows"),
        pytest.param(("up",), Screen(at=0), id="not above the first"),
        pytest.param(("G",), Screen(at=40), id="the last"),
        pytest.param(("tab",), Screen(tab="gangs"), id="the next view"),
        pytest.param(("left",), Screen(tab="over time"), id="the view before"),
        pytest.param(("/", "w", "i", "enter"), Screen(search="wi"), id="a search that stays"),
        pytest.param(("/", "w", "i", "esc"), Screen(), id="a search that is dropped"),
        pytest.param(("/", "q", "backspace", "q"), Screen(search="q", typing=True), id="letters in a search"),
    ],
)
def test_keys(keys: tuple[str, ...], want: Screen) -> None:
    assert after(*keys) == (want, None)


@pytest.mark.parametrize(
    ("keys", "want"),
    [
        (("enter",), Wanted("explain", "ns", "wide")),
        (("down", "y"), Wanted("yaml", "ns", "s0")),
        (("tab", "d"), Wanted("describe", "ns", "wide-0")),
        (("/", "s", "3", "9", "enter", "l"), Wanted("logs", "ns", "s39")),
        (("4", "down", "enter"), Wanted("explain", "ns", "s3")),
        (("4", "enter"), None),
        (("q",), Wanted(ends=True)),
    ],
)
def test_a_key_asks_for_a_page_about_the_line(keys: tuple[str, ...], want: Wanted | None) -> None:
    assert after(*keys)[1] == want


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize("tab", ["sets", "gangs", "fleet", "over time"])
def test_it_draws_exactly_the_terminal(width: int, height: int, tab: str) -> None:
    lines = draw(Screen(tab=tab), MODEL, width, height)
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width


def test_the_line_under_the_cursor_is_on_the_screen() -> None:
    for at in range(41):
        lines = draw(Screen(at=at), MODEL, 80, 12)
        [marked] = [line for line in lines[2:] if line.style == "reverse"]
        assert SETS[at].name in marked.plain


def test_a_page_scrolls_and_goes_away() -> None:
    screen = shown(Screen(title="yaml ns/wide"), [f"line {i}" for i in range(100)])
    assert "line 0" in draw(screen, MODEL, 80, 24)[2].plain
    down, _ = press(screen, "pgdn", MODEL, 24)
    assert "line 20" in draw(down, MODEL, 80, 24)[2].plain
    end, _ = press(down, "G", MODEL, 24)
    assert "line 99" in draw(end, MODEL, 80, 24)[21].plain
    assert press(end, "esc", MODEL, 24)[0].page == ()


def test_a_dead_operator_is_red_at_the_bottom() -> None:
    dead = replace(MODEL, processes=Processes(Process("grove-operator", DOWN, "no process leads")))
    alarm = draw(Screen(), dead, 80, 24)[-2]
    assert (alarm.plain, str(alarm.style)) == ("grove-operator does not run (no process leads)", "bold red")


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        ("\x1b[A\x1b[Bq", ["up", "down", "q"]),
        ("\x1b", ["esc"]),
        ("\x1b[5~/ab\r", ["pgup", "/", "a", "b", "enter"]),
        ("\x1b[1;5Cx", ["x"]),
        ("\x03", ["ctrl-c"]),
    ],
)
def test_what_a_terminal_sends(sent: str, want: list[str]) -> None:
    assert list(split_keys(sent)) == want


def test_figures_of_the_last_hour_are_lines_of_blocks() -> None:
    lines = [line.plain.split() for line in draw(Screen(tab="over time"), MODEL, 70, 12)[2:6]]
    assert lines[0] == ["OF", "FIGURE", "NOW", "HIGHEST", "THE", "LAST", "HOUR"]
    assert lines[1] == ["the", "fleet", "gangs", "that", "wait", "1", "4", "▁" * 10 + "█" * 7 + "▃" * 5]
    assert lines[2] == ["ns/s3", "KV", "cache", "in", "use", "50", "%", "50", "%", "█" * 12]
    assert lines[3] == ["ns/s3", "gang", "restarts", "2", "▁" * 21 + "█"]


def test_a_search_narrows_the_figures() -> None:
    screen, _ = after("4", "/", "k", "v", "enter")
    assert [line.plain.split()[:2] for line in draw(screen, MODEL, 80, 12)[3:5]] == [["ns/s3", "KV"], []]
