"""The report of a run: one HTML page with everything in it, plots as SVG, no script and no network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from types import MappingProxyType

from grove.api.meta import Json

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 220, 52, 24
COLOURS = {
    "serving": "#1b7f4d",
    "starting": "#7fbf9e",
    "idle": "#d8dee4",
    "down": "#b42318",
    "waiting": "#7a3fb0",
    "fragmented": "#9a6700",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --line: #d0d7de; --soft: #57606a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --soft: #9da7b1; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 960px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
td.text, th.text { text-align: left; }
p.soft, figcaption { color: var(--soft); } figure { margin: 0; overflow-x: auto; }
svg text { fill: var(--ink); font-size: 12px; } svg .axis { stroke: var(--line); }
.bad { color: #b42318; font-weight: 600; } .key { display: inline-block; width: .8em; height: .8em; }
@media (prefers-color-scheme: dark) { .bad { color: #ff8a80; } }
"""


def page(results: Json, cpu: Mapping[str, float] = MappingProxyType({})) -> str:
    """The whole page for the results of one run. `cpu` has CPU seconds by what used them: no part of the results."""
    title = results["title"] or "A fleet"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{results['days']:g} simulated days, {results['nodes']} nodes, {results['gpus']} GPUs, "
        f"seed {results['seed']}.</p>",
        _promises(results),
        "<h2>GPUs over time</h2>",
        _areas(results),
        _hours(results),
        "<h2>Gangs that wait, over time</h2>",
        _line(results, "waitingGangs", "gangs", COLOURS["waiting"]),
        "<h2>Fragmentation over time</h2>",
        "<p class=soft>The share of free GPUs that a pod of the typical size cannot use.</p>",
        _line(results, "fragmented", "share", COLOURS["fragmented"], most=1.0),
        "<h2>Waiting time</h2>",
        _waiting(results),
        _still(results),
        "<h2>Serving</h2>",
        _serving(results),
        "<h2>Teams</h2>",
        _teams(results),
        "<h2>Batch work, failures, writes</h2>",
        _counts(results, cpu),
    ]
    body = "\n".join(part for part in parts if part)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>\n{body}\n</main></body></html>\n'


def span(seconds: float | None) -> str:
    """A time as people say it: `40 s`, `12 min`, `3.5 h`, `2.1 d`."""
    if seconds is None:
        return "–"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _promises(results: Json) -> str:
    if not results["promises"]:
        return "<p>Promises held: Exact, Atomic, Caused, Minimum, Budget, Progress, Stable, Convergent, Memory.</p>"
    rows = "".join(
        f"<li class=bad>{escape(broken['promise'])} broken after {span(broken['at'])}: {escape(broken['text'])}</li>"
        for broken in results["promises"]
    )
    return f"<ul>{rows}</ul>"


def _areas(results: Json) -> str:
    """Stacked areas of the GPUs by state."""
    series, order = results["series"], ("serving", "starting", "idle", "down")
    total = max(1, max(sum(series[state][i] for state in order) for i in range(len(series["hours"]))))
    below = [0.0] * len(series["hours"])
    shapes = []
    for state in order:
        above = [low + value for low, value in zip(below, series[state], strict=True)]
        points = [*_points(series["hours"], above, total), *reversed(_points(series["hours"], below, total))]
        shapes.append(f'<polygon fill="{COLOURS[state]}" points="{" ".join(points)}"/>')
        below = above
    keys = " ".join(f'<span class=key style="background:{COLOURS[state]}"></span> {state}' for state in order)
    means = ", ".join(f"{state} {share(value)}" for state, value in results["utilisation"].items())
    caption = f"{keys}. Of the GPUs of nodes that are up, on average: {means}."
    return _figure("GPUs by state over time", "".join(shapes), series["hours"], total, "GPUs", caption)


def _hours(results: Json) -> str:
    """GPU-hours by state. Those of pods that wait have no GPU, so they are no part of the cluster's."""
    rows = [(name.capitalize(), f"{hours:,.0f}") for name, hours in results["gpuHours"].items()]
    return table(("State", "GPU-hours"), rows)


def _line(results: Json, column: str, unit: str, colour: str, most: float | None = None) -> str:
    series = results["series"]
    top = most if most is not None else max(1.0, max(series[column]))
    points = " ".join(_points(series["hours"], series[column], top))
    shape = f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>'
    return _figure(f"{unit} over time", shape, series["hours"], top, unit, "")


def _points(hours: Sequence[float], values: Sequence[float], top: float) -> list[str]:
    last = hours[-1] or 1.0
    across, up = WIDTH - LEFT - 8, HEIGHT - BOTTOM - 8
    return [f"{LEFT + across * h / last:.1f},{8 + up * (1 - v / top):.1f}" for h, v in zip(hours, values, strict=True)]


def _figure(label: str, shapes: str, hours: Sequence[float], top: float, unit: str, caption: str) -> str:
    bottom = HEIGHT - BOTTOM
    ticks = []
    for step in range(5):
        x = LEFT + (WIDTH - LEFT - 8) * step / 4
        anchor = "end" if step == 4 else "middle"  # the last one ends with the plot, or it would be cut off
        days = f"{hours[-1] * step / 4 / 24:.3g} d"
        ticks.append(f'<text x="{x:.0f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{days}</text>')
    for step in range(3):
        y = 8 + (bottom - 8) * (1 - step / 2)
        ticks.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{top * step / 2:.4g}</text>')
        ticks.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.0f}" y2="{y:.0f}"/>')
    title = f"<title>{escape(label)} ({escape(unit)})</title>"
    svg = f'<svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">{title}'
    drawn = f"{svg}{''.join(ticks)}{shapes}</svg><figcaption>{caption}</figcaption>"
    return f'<figure tabindex="0" aria-label="{escape(label)}">{drawn}</figure>'  # narrow screens scroll it


def _waiting(results: Json) -> str:
    rows = []
    for what in ("all", "team", "size", "priority"):
        for name, row in results["waiting"][what].items():
            label = name if what == "all" else f"{what} {name}" if what != "size" else name
            rows.append((label, *_spread(row)))
    if (again := results["waitingAgain"]) is not None:
        rows.append(("after the loss of a place", *_spread(again)))
    return table(("Gangs", "Count", "Half within", "95 % within", "Worst"), rows)


def _spread(row: Json) -> tuple[str, ...]:
    return str(row["count"]), span(row["p50"]), span(row["p95"]), span(row["worst"])


def _still(results: Json) -> str:
    rows = [
        (gang["gang"], gang["team"], str(gang["pods"]), span(gang["waited"]), gang["reason"], gang["message"])
        for gang in results["stillWaiting"][:20]
    ]
    if not rows:
        return "<p>No gang waits at the end.</p>"
    more = len(results["stillWaiting"]) - len(rows)
    tail = f"<p class=soft>And {more} more.</p>" if more else ""
    heading = "<h2>Gangs that still wait at the end</h2>"
    return heading + table(("Gang", "Team", "Pods", "Waits for", "Reason", "Message"), rows) + tail


def _serving(results: Json) -> str:
    rows = []
    for name, serving in results["serving"].items():
        updates = serving["updates"] or {}
        rows.append(
            (
                name,
                span(serving["belowMinimum"]),
                str(serving["timesBelowMinimum"]),
                span(serving["belowMinimumInUpdates"]),
                span(serving["belowBudget"]),
                share(serving["excused"]),
                share(serving["updating"]),
                share(serving["servedShare"]),
                str(serving["notServed"]),
                f"{serving['releases']} ({serving['undone']} undone)",
                span(updates.get("p95")),
                str(serving["restarts"]),
                str(serving["scaled"]),
            )
        )
    header = (
        "Set",
        "Below minimum",
        "Times",
        "In updates",
        "Below budget",
        "Excused",
        "Updating",
        "Served",
        "Lost",
        "Releases",
        "Update, 95 %",
        "Restarts",
        "Scaled",
    )
    return table(header, rows)


def _teams(results: Json) -> str:
    rows = [
        (
            name,
            *(f"{team[what]:,.0f}" for what in ("used", "asked", "due", "borrowed")),
            share(team["share"]),
            share(team["fairness"]),
            _of(team["quota"]),
            _of(team["limit"]),
        )
        for name, team in results["teams"].items()
    ]
    header = ("Team", "GPU-hours used", "Asked for", "Due", "Borrowed", "Used of asked", "Got of due", "Quota", "Limit")
    return table(header, rows)


def _of(value: int | None) -> str:
    return "–" if value is None else str(value)


def _counts(results: Json, cpu: Mapping[str, float]) -> str:
    batch, slow = results["batch"], results["batch"]["slowdown"] or {}
    rows = [
        ("Batch gangs finished", str(batch["finished"])),
        ("Batch gangs not finished", str(batch["unfinished"])),
        ("Time from arrival to end over running time, half / 95 %", f"{slow.get('p50', '–')} / {slow.get('p95', '–')}"),
        *((name.capitalize(), str(count)) for name, count in results["events"].items()),
        *((name.capitalize(), str(count)) for name, count in results["happenings"].items()),
        *((f"API writes of the {name}", f"{count:,}") for name, count in results["writes"].items()),
        *((f"CPU time of {name}", f"{used_s:.1f} s") for name, used_s in cpu.items()),
    ]
    return table(("What", "How often"), rows)
