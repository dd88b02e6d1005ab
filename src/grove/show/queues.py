"""The tree of queues as a table: guaranteed, used, fair share, limit, what waits, and a bar of use."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from grove.api.quantity import format_amount
from grove.scheduler.explain.explanation import QueueRow
from grove.show.columns import table

CELLS = 12
TITLES = ("QUEUE", "RESOURCE", "GUARANTEED", "USED", "FAIR SHARE", "LIMIT", "WAITING", "USE OF ITS SHARE")
NUMBERS = ("GUARANTEED", "USED", "FAIR SHARE", "LIMIT", "WAITING")


def tree_table(rows: Sequence[QueueRow], width: int) -> Group:
    """A line a queue and resource; what is above its guarantee is borrowed and shown as such."""
    lines: list[tuple[Text | str, ...]] = []
    for row in rows:
        for number, resource in enumerate(row.resources or ("",)):
            name = f"{'  ' * row.depth}{row.name}" if number == 0 else ""
            if not resource or row.fault:
                lines.append((name, "", "", "", "", "", "", Text(row.fault, style="bold red")))
                break
            amounts = [
                _shown(resource, part.get(resource))
                for part in (row.guaranteed, row.used, row.fair_share, row.limit, row.waiting)
            ]
            lines.append((name, resource, *amounts, use_bar(row, resource)))
    return table(TITLES, lines, width, may_go=("GUARANTEED", "LIMIT"), right=NUMBERS)


def use_bar(row: QueueRow, resource: str, cells: int = CELLS) -> Text:
    """Use against the fair share: full blocks within what is guaranteed, shaded ones for what is borrowed."""
    used, own = row.used.get(resource, 0), row.guaranteed.get(resource, 0)
    whole = max(row.fair_share.get(resource, 0), used, 1)
    filled = -(-used * cells // whole)
    safe = min(filled, -(-min(used, own) * cells // whole))
    bar = Text("█" * safe, style="green").append("▒" * (filled - safe), style="yellow")
    bar.append("·" * (cells - filled), style="dim")
    borrowed = used - own
    if borrowed > 0:
        bar.append(f" {format_amount(resource, borrowed)} borrowed", style="yellow")
    return bar


def _shown(resource: str, amount: int | None) -> str:
    return "–" if amount is None else format_amount(resource, amount)
