"""Trees and layouts as rich text. Every picture fits its width: what is least needed is left out or cut first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.text import Text

from grove.api.words import many
from grove.diagnosis.states import brief
from grove.diagnosis.tree import Count, State, TreeEntry
from grove.show.colours import colours_of
from grove.show.columns import GAP, table
from grove.show.layout import Domain, Layout, Level, Spot

MARKS = {
    State.READY: ("●", "green"),
    State.STARTING: ("◐", "yellow"),
    State.PENDING: ("○", "magenta"),
    State.GATED: ("◌", "blue"),
    State.MISSING: ("·", "dim"),
    State.LEAVING: ("✕", "dim"),
    State.FAILED: ("✖", "red"),
}
LEGEND = "● ready  ◐ starting  ○ pending  ◌ gated  ✖ failed  ✕ leaving"
_EIGHTHS = " ▁▂▃▄▅▆▇█"
WIDE = 120
DEEP = 6
"""A stem longer than this belongs to something inside a scaling group."""


def tree_table(tree: TreeEntry, width: int, *, pods: bool = True) -> Group:
    """The tree as a table; on a narrow terminal idle counts are left out, and pods are called by their ends."""
    lines = list(_lines(tree, "", "", pods))
    is_tight = _needed(lines) > width
    counts = [("SCHED", "scheduled"), ("UPD", "updated"), ("GATED", "gated")]
    if width < WIDE:
        idle = {
            "scheduled": tree.count.scheduled >= tree.count.wanted,
            "gated": not tree.count.gated,
            "updated": tree.count.updated >= tree.count.wanted,
        }
        counts = [count for count in counts if not idle[count[1]]]
    titles = ["NAME", "READY", *(title for title, _ in counts), "GANG", "WHERE", "WHY"]
    rows: list[list[Text | str]] = []
    printed: set[str] = set()
    for stem, entry in lines:
        mark, hue = MARKS[entry.state]
        name = Text().append(stem, style="dim")
        name.append(f"{mark} " if entry.kind == "Pod" else "", style=hue)
        label = f"…{entry.label.rpartition('-')[2]}" if is_tight and entry.kind == "Pod" else entry.label
        name.append(label, style="bold" if entry.kind == "PodCliqueSet" else "")
        gang = ""
        if entry.kind in ("Replica", "GroupReplica") and entry.gang:
            other = entry.kind == "GroupReplica" and _is_numbered_otherwise(entry)
            gang = entry.gang + (f" (instance {entry.label})" if other else "")
            gang += f" {entry.score:.2f}" if entry.score is not None else ""
        why = brief(entry.why) if _tells(entry) and entry.why not in printed else ""
        printed |= {entry.why} if entry.kind == "Pod" else set()
        rows.append(
            [
                name,
                _ready(entry),
                *(_of(entry, field) for _, field in counts),
                gang,
                entry.node or _few(entry.domains),
                Text(why, style=hue),
            ]
        )
    if not any(row[-1] for row in rows):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return table(
        titles, rows, width, may_go=("GATED", "UPD", "SCHED", "GANG"), right=("READY", "SCHED", "UPD", "GATED")
    )


def _needed(lines: Sequence[tuple[str, TreeEntry]]) -> int:
    """The width at which names, what is ready and where it is stand side by side, with pods by their whole names.

    On less a pod is called by its own end alone: its clique stands above it.
    """
    names = max(len(stem) + 2 * (entry.kind == "Pod") + len(entry.label) for stem, entry in lines)
    places = max(len(entry.node or _few(entry.domains)) for _, entry in lines)
    return names + GAP + len("READY") + GAP + places


def _is_numbered_otherwise(entry: TreeEntry) -> bool:
    """True if a scaled gang has another number than the group's replica.

    Scaled gangs are counted from the minimum on.
    """
    return entry.gang != entry.name and entry.gang.rpartition("-")[0] == entry.name.rpartition("-")[0]


def _tells(entry: TreeEntry) -> bool:
    """A reason stands where it arises, and once more on the top line."""
    return entry.kind in ("Pod", "PodCliqueSet") or not entry.children or entry.state is State.MISSING


def _lines(entry: TreeEntry, lead: str, stem: str, pods: bool) -> Iterator[tuple[str, TreeEntry]]:
    yield lead + stem, entry
    children = [child for child in entry.children if pods or child.kind != "Pod"]
    inner = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[stem]
    for i, child in enumerate(children):
        yield from _lines(child, inner, "└─ " if i + 1 == len(children) else "├─ ", pods)


def _ready(entry: TreeEntry) -> Text:
    if entry.kind == "Pod":
        return Text("")
    count = entry.count
    return Text(f"{count.ready}/{count.wanted}", style="green" if count.ready >= count.wanted else "yellow")


def _of(entry: TreeEntry, field: str) -> str:
    if entry.kind == "Pod":
        return ""
    value: int = getattr(entry.count, field)
    return str(value) if field == "gated" else f"{value}/{entry.count.wanted}"


def _few(names: Sequence[str], most: int = 2) -> str:
    return ", ".join(names[:most]) + (f" +{len(names) - most}" if len(names) > most else "")


def growth(tree: TreeEntry, width: int = WIDE) -> Iterator[Text]:
    """The tree with one line a clique and one mark a pod: what fits beside other things while it changes."""
    for stem, entry in _lines(tree, "", "", pods=False):
        if entry.kind == "PodClique" and len(stem) > DEEP:
            continue  # shown on the line of its group's replica
        line = Text().append(stem, style="dim")
        line.append(entry.label, style="bold" if entry.kind in ("PodCliqueSet", "Replica") else "")
        if entry.kind == "PodClique":
            line.append(" ")
            line.append_text(_marks(entry))
        elif entry.kind == "GroupReplica":
            for clique in entry.children:
                line.append(f"  {clique.label} ")
                line.append_text(_marks(clique))
        elif entry.kind == "PodCliqueSet":
            line.append(f"  {_pods_ready(entry.count)}", style="dim")
        if entry.gang and entry.kind != "PodClique":
            score = f" · {entry.score:.2f}" if entry.score is not None else ""
            place = f" · {_few(entry.domains)}" if entry.domains else ""
            space = width - line.cell_len
            whole = f"  {entry.gang}{place}{score}"
            line.append(whole if len(whole) <= space else f"  {entry.gang}{place}", style="dim")
        yield line


def _marks(clique: TreeEntry) -> Text:
    """One mark a pod, and one for each that does not exist."""
    text = Text()
    for pod in clique.children:
        text.append(*MARKS[pod.state])
    missing = clique.count.wanted - sum(pod.state is not State.LEAVING for pod in clique.children)
    text.append("·" * max(0, missing), style="dim")
    return text


def _pods_ready(count: Count) -> str:
    return f"{count.ready} of {many(count.wanted, 'pod')} ready"


# Layouts


def racks(layout: Layout, width: int) -> Iterator[Text]:
    """One mark a node, as high as it is full, in the colour of the gang that has most of it; one line a block."""
    colours, blocks = colours_of(layout), _second_last(layout.root)
    most = max((len(rack.spots) for block in blocks for rack in block.domains or (block,)), default=0)
    for block in blocks:
        line = Text(f"{block.name:<10} ", style="")
        for rack in block.domains or (block,):
            cell = Text().append(f"{_short(rack.name, block.name)} ", style="dim")
            for spot in rack.spots:
                cell.append(*_mark(spot, colours))
            cell.append(" " * (most - len(rack.spots)))
            cell.append(f" {rack.used:>3}/{rack.total:<3} ", style="dim")
            if line.cell_len + cell.cell_len > width:
                yield line
                line = Text(" " * 11)
            line.append_text(cell)
        yield line


def _second_last(domain: Domain) -> list[Domain]:
    if not domain.domains or not domain.domains[0].domains:
        return [domain]
    return [block for inner in domain.domains for block in _second_last(inner)]


def _short(name: str, parent: str) -> str:
    return name.removeprefix(parent).lstrip("-") or name


def _mark(spot: Spot, colours: dict[str, str]) -> tuple[str, str]:
    if not spot.open:
        return "✖" if spot.note == "does not answer" else "▒", "red"
    if not spot.used or not spot.total:
        return "·", "dim"
    height = max(1, round(8 * min(spot.used, spot.total) / spot.total))
    return _EIGHTHS[height], colours.get(spot.taken[0][0], "white") if spot.taken else "white"


def bar(used: int, total: int, cells: int = 16) -> Text:
    filled = round(cells * used / total) if total else 0
    text = Text().append("█" * filled, style="green" if used <= total else "red")
    text.append("░" * (cells - filled), style="dim")
    return text


def domain_lines(layout: Layout, width: int, *, nodes: bool) -> Iterator[Text]:
    """Every domain with a bar, nested; nodes with the gangs on them."""
    colours = colours_of(layout)
    lines = list(_domain_lines(layout.root, "", "", nodes))
    column = max(len(stem) + len(_title(part)) for stem, part in lines)
    for stem, part in lines:
        line = Text().append(stem, style="dim")
        line.append(_title(part), style="bold" if isinstance(part, Domain) else "")
        line.append(" " * (column - line.cell_len + 2))
        what = f" {layout.resource}" if part is layout.root else ""
        line.append_text(_domain_cells(part, what) if isinstance(part, Domain) else _spot_cells(part, colours))
        line.truncate(width, overflow="ellipsis")
        yield line


def _title(part: Domain | Spot) -> str:
    if isinstance(part, Spot):
        return part.node
    return f"{part.level} {part.name}" if part.level != part.name else part.name


def _domain_lines(domain: Domain, lead: str, stem: str, nodes: bool) -> Iterator[tuple[str, Domain | Spot]]:
    yield lead + stem, domain
    inner = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[stem]
    below: list[Domain | Spot] = [*domain.domains, *(domain.spots if nodes else ())]
    for i, part in enumerate(below):
        end = "└─ " if i + 1 == len(below) else "├─ "
        if isinstance(part, Domain):
            yield from _domain_lines(part, inner, end, nodes)
        else:
            yield inner + end, part


def _domain_cells(domain: Domain, what: str) -> Text:
    line = bar(domain.used, domain.total)
    line.append(f" {domain.used}/{domain.total}{what}")
    line.append(f"  {many(domain.nodes, 'node')}, {domain.whole} unused", style="dim")
    return line


def _spot_cells(spot: Spot, colours: dict[str, str]) -> Text:
    line, filled, cells = Text(), 0, 16
    for owner, count in spot.taken:
        share = min(cells - filled, round(cells * count / spot.total) if spot.total else 0)
        line.append("█" * share, style=colours.get(owner, "white"))
        filled += share
    line.append("░" * (cells - filled), style="dim")
    line.append(f" {spot.used}/{spot.total}")
    for owner, count in spot.taken[:3]:
        line.append(f"  {owner}", style=colours.get(owner, ""))
        line.append(f" ×{count}", style="dim")
    if len(spot.taken) > 3:
        line.append(f"  +{len(spot.taken) - 3}", style="dim")
    if spot.words:
        line.append(f"  {spot.words}", style="red" if spot.note or spot.broken else "yellow")
    return line


def level_table(layout: Layout, width: int) -> Group:
    """The table of each level's capacity for a gang that must stay inside one domain."""
    titles = ("LEVEL", "DOMAINS", "LARGEST FREE", "WHOLE NODES", "IN", "FRAGMENTED", "UNLABELLED")
    rows = [
        (
            level.name,
            str(level.domains),
            str(level.largest_free),
            str(level.largest_whole),
            level.best,
            f"{level.fragmentation:.0%}",
            str(level.unlabelled) if level.unlabelled else "",
        )
        for level in layout.levels
    ]
    moves = [Text(_move(level), style="dim", overflow="fold") for level in layout.levels if level.to_free]
    meaning = Text(layout.measure, style="dim", overflow="fold")
    numbers = ("DOMAINS", "LARGEST FREE", "WHOLE NODES", "FRAGMENTED")
    return Group(table(titles, rows, width, right=numbers), meaning, *moves)


def _move(level: Level) -> str:
    """Who would have to move for one more domain to be whole."""
    shown = ", ".join(f"{owner} ({count})" for owner, count in level.movers[:4])
    more = f" and {len(level.movers) - 4} more" if len(level.movers) > 4 else ""
    return f"to free {level.name} {level.to_free}: {shown}{more} would have to move"
