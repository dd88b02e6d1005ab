"""The live screen: sets, gangs and the fleet, as a value that keys change and that draws itself. Pure.

`press` gives the next state and what has to be fetched for it; `draw` makes exactly as many lines as the terminal has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.text import Text

from grove.api.words import many
from grove.diagnosis.gang_answer import Verdict
from grove.diagnosis.processes import Processes
from grove.diagnosis.states import STYLES, WORST_FIRST
from grove.diagnosis.words import age
from grove.show.figures import Figure
from grove.show.figures import shown as shown_value
from grove.show.layout import Layout, Level
from grove.show.overview import Row
from grove.show.paint import bar, racks
from grove.show.past import Point, bucketed, spark

ALL_UNKNOWN = Processes()
SETS, GANGS, FLEET, TRENDS = "sets", "gangs", "fleet", "over time"
TABS = (SETS, GANGS, FLEET, TRENDS)
LAST_S = 3600.0
"""How far back the lines of `over time` reach."""
EXPLAIN, LOGS, DESCRIBE, YAML, KEYS = "explain", "logs", "describe", "yaml", "keys"
FETCH = {"enter": EXPLAIN, "l": LOGS, "d": DESCRIBE, "y": YAML}
HELP = (
    ("↑ ↓  j k", "the line above or below"),
    ("← →  tab  1 2 3 4", "sets, gangs, fleet, over time"),
    ("PgUp PgDn  g G", "a page, the first or the last line"),
    ("enter", "explain: why it is as it is, and what would help"),
    ("d", "describe: what happened to it, as a timeline"),
    ("l", "the last lines of its pods' logs"),
    ("y", "its YAML"),
    ("/", "search; enter keeps it, esc drops it"),
    ("esc  q", "back; q on the first screen ends"),
    ("?", "these keys"),
)


@dataclass(frozen=True, slots=True)
class Gang:
    """One line of the gangs' table."""

    namespace: str
    verdict: Verdict
    place: str
    score: float | None
    pods: int


@dataclass(frozen=True, slots=True)
class Trend:
    """One line of figures over time: of a set, or of the fleet, which has no namespace and no name."""

    namespace: str
    name: str
    figure: Figure
    points: Sequence[Point]


@dataclass(frozen=True)
class Model:
    """The content of the screen at one moment."""

    sets: Sequence[Row] = ()
    gangs: Sequence[Gang] = ()
    layout: Layout | None = None
    processes: Processes = ALL_UNKNOWN
    now: datetime | None = None
    note: str = ""
    trends: Sequence[Trend] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of a key: to end, or to show the page of a subject."""

    what: str = ""
    namespace: str = ""
    name: str = ""
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """`page` is a text that lies over the tables; `typing` is on while a search is written."""

    tab: str = SETS
    at: int = 0
    search: str = ""
    typing: bool = False
    title: str = ""
    page: tuple[str, ...] = ()
    scroll: int = 0


def press(screen: Screen, key: str, model: Model, height: int) -> tuple[Screen, Wanted | None]:
    if screen.typing:
        return _type(screen, key), None
    if screen.page:
        return _turn(screen, key, height)
    rows = _names(screen, model)
    if key in ("q", "ctrl-c"):
        return screen, Wanted(ends=True)
    if key == "esc":
        return replace(screen, search="", at=0), None
    if key in ("tab", "right", "left", "1", "2", "3", "4"):
        step = -1 if key == "left" else 1
        tab = TABS[int(key) - 1] if key.isdigit() else TABS[(TABS.index(screen.tab) + step) % len(TABS)]
        return replace(screen, tab=tab, at=0), None
    if key == "/":
        return replace(screen, typing=True, search=""), None
    if key == "?":
        return replace(screen, title="keys", page=tuple(f"{keys:<18} {text}" for keys, text in HELP), scroll=0), None
    if key in FETCH and rows:
        namespace, name = rows[min(screen.at, len(rows) - 1)]
        return screen, Wanted(FETCH[key], namespace, name) if name else None
    return replace(screen, at=_moved(screen.at, key, len(rows), _space(height))), None


def _type(screen: Screen, key: str) -> Screen:
    if key == "enter":
        return replace(screen, typing=False, at=0)
    if key == "esc":
        return replace(screen, typing=False, search="", at=0)
    if key == "backspace":
        return replace(screen, search=screen.search[:-1])
    return replace(screen, search=screen.search + key, at=0) if len(key) == 1 and key.isprintable() else screen


def _turn(screen: Screen, key: str, height: int) -> tuple[Screen, Wanted | None]:
    if key in ("esc", "q", "left", "backspace"):
        return replace(screen, page=(), title="", scroll=0), None
    if key == "ctrl-c":
        return screen, Wanted(ends=True)
    most = max(0, len(screen.page) - _space(height))
    return replace(screen, scroll=min(most, _moved(screen.scroll, key, most + 1, _space(height)))), None


def _moved(at: int, key: str, count: int, page: int) -> int:
    step = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdn": page, "g": -count, "G": count}.get(key, 0)
    return max(0, min(count - 1, at + step)) if count else 0


def _space(height: int) -> int:
    """Lines between head and foot."""
    return max(1, height - 4)


def shown(screen: Screen, lines: Sequence[str]) -> Screen:
    """With a page over the tables."""
    return replace(screen, page=tuple(lines) or ("nothing to show",), scroll=0)


def _names(screen: Screen, model: Model) -> list[tuple[str, str]]:
    if screen.tab == SETS:
        return [(row.namespace, row.name) for row in _sets(screen, model)]
    if screen.tab == GANGS:
        return [(gang.namespace, gang.verdict.gang) for gang in _gangs(screen, model)]
    if screen.tab == TRENDS:
        return [(trend.namespace, trend.name) for trend in _trends(screen, model)]
    return []


def _sets(screen: Screen, model: Model) -> list[Row]:
    word = screen.search.lower()
    return [row for row in model.sets if word in f"{row.namespace}/{row.name} {row.state} {row.why}".lower()]


def _gangs(screen: Screen, model: Model) -> list[Gang]:
    word = screen.search.lower()
    gangs = [
        gang for gang in model.gangs if word in f"{gang.namespace}/{gang.verdict.gang} {gang.verdict.reason}".lower()
    ]
    return sorted(gangs, key=lambda gang: WORST_FIRST.index(gang.verdict.state))


def _trends(screen: Screen, model: Model) -> list[Trend]:
    word = screen.search.lower()
    return [trend for trend in model.trends if word in f"{trend.namespace}/{trend.name} {trend.figure.title}".lower()]


def draw(screen: Screen, model: Model, width: int, height: int) -> list[Text]:
    """Exactly `height` lines of at most `width` cells."""
    space = _space(height)
    head = [_tabs(screen, model), _summary(model)]
    if screen.page:
        body = [Text(line) for line in screen.page[screen.scroll : screen.scroll + space]]
        left = len(screen.page) - screen.scroll - space
        foot = f"{screen.title} · esc back" + (f" · {many(left, 'more line')}" if left > 0 else "")
    else:
        body = _body(screen, model, width, space)
        foot = "↑↓ move  enter explain  d describe  l logs  y yaml  / search  ←→ views  ? keys  q quit"
    if screen.typing or screen.search:
        foot = f"/{screen.search}" + ("▏" if screen.typing else f"   {foot}")
    lines = [*head, *body[:space]]
    lines += [Text("")] * (height - 2 - len(lines))
    alarm = _alarm(model)
    lines += [Text(alarm, style="bold red") if alarm else Text(model.note, style="yellow"), Text(foot, style="dim")]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines[:height]


def _alarm(model: Model) -> str:
    return "; ".join(process.sentence for process in model.processes.down)


def _tabs(screen: Screen, model: Model) -> Text:
    text = Text("grove ", style="bold")
    for number, tab in enumerate(TABS, 1):
        text.append(f" {number} {tab} ", style="reverse" if tab == screen.tab else "dim")
    if model.now is not None:
        text.append(f"   {model.now:%H:%M:%S}", style="dim")
    return text


def _summary(model: Model) -> Text:
    text = Text()
    states: dict[str, int] = {}
    for row in model.sets:
        states[row.state] = states.get(row.state, 0) + 1
    text.append(many(len(model.sets), "set"), style="bold")
    for state, count in states.items():
        text.append(f"  {count} {state}", style=STYLES[state])
    if model.layout is not None:
        root = model.layout.root
        text.append("   ")
        text.append_text(bar(root.used, root.total, 12))
        text.append(f" {root.used}/{root.total} {model.layout.resource.rpartition('/')[2].upper()}s", style="dim")
    return text


def _body(screen: Screen, model: Model, width: int, space: int) -> list[Text]:
    if screen.tab == FLEET:
        return _fleet(model, width)
    if screen.tab == TRENDS:
        return _over_time(screen, model, width, space)
    if screen.tab == SETS:
        titles = ("NAME", "STATE", "PODS", "GPUS", "AGE", "WHY")
        rows = [
            (
                f"{row.namespace}/{row.name}",
                row.state,
                f"{row.ready}/{row.pods}",
                f"{row.held}/{row.asked}",
                age(row.created, model.now) if model.now else "",
                row.why,
            )
            for row in _sets(screen, model)
        ]
    else:
        titles = ("GANG", "STATE", "PODS", "SCORE", "PLACE", "WHY")
        rows = [
            (
                f"{gang.namespace}/{gang.verdict.gang}",
                gang.verdict.state,
                str(gang.pods),
                "" if gang.score is None else f"{gang.score:.2f}",
                gang.place,
                gang.verdict.brief,
            )
            for gang in _gangs(screen, model)
        ]
    return _table(titles, rows, min(screen.at, max(0, len(rows) - 1)), space)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], at: int, space: int) -> list[Text]:
    wide = [max([len(title), *(len(row[i]) for row in rows)]) + 2 for i, title in enumerate(titles)]
    lines = [Text("".join(title.ljust(wide[i]) for i, title in enumerate(titles)).rstrip(), style="bold")]
    first = max(0, min(at - (space - 2), len(rows) - (space - 1))) if at >= space - 1 else 0
    for number, row in enumerate(rows[first : first + space - 1], first):
        line = Text(style="reverse" if number == at else "")
        for i, cell in enumerate(row):
            style = STYLES.get(cell, "yellow") if titles[i] == "STATE" and number != at else ""
            line.append(cell.ljust(wide[i]), style=style)
        lines.append(line)
    if not rows:
        lines.append(Text("nothing here", style="dim"))
    return lines


def _over_time(screen: Screen, model: Model, width: int, space: int) -> list[Text]:
    """A line a figure: its value, the highest one of the last hour, and the hour as blocks."""
    trends = _trends(screen, model)
    if model.now is None or not trends:
        return [Text("no figures yet", style="dim")]
    until = model.now.timestamp()
    names = [f"{trend.namespace}/{trend.name}" if trend.name else "the fleet" for trend in trends]
    taken = max(map(len, names)) + max(len(trend.figure.title) for trend in trends) + 2 * 8 + 8
    cells = max(10, min(60, width - taken))
    rows = []
    for name, trend in zip(names, trends, strict=True):
        cells_of = bucketed(trend.points, until - LAST_S, until, cells, counts=trend.figure.counts)
        known = [cell for cell in cells_of if cell is not None]
        now = sum(known) if trend.figure.counts else trend.points[-1][1] if trend.points else None
        rows.append(
            (
                name,
                trend.figure.title,
                shown_value(now, trend.figure.unit),
                _highest(known, trend.figure),
                spark(cells_of),
            )
        )
    titles = ("OF", "FIGURE", "NOW", "HIGHEST", "THE LAST HOUR")
    return _table(titles, rows, min(screen.at, max(0, len(rows) - 1)), space)


def _highest(known: Sequence[float], figure: Figure) -> str:
    return "" if figure.counts else shown_value(max(known, default=None), figure.unit)


def _fleet(model: Model, width: int) -> list[Text]:
    if model.layout is None:
        return [Text("you may not see the nodes", style="yellow")]
    return [
        *racks(model.layout, width),
        *(Text(_offer(level), style="dim") for level in model.layout.levels),
        Text(model.layout.measure, style="dim"),
    ]


def _offer(level: Level) -> str:
    best = f"largest free {level.largest_free} in {level.best or '-'}"
    return f"{level.name}: {many(level.domains, 'domain')}, {best}, {level.fragmentation:.0%} fragmented"
