"""The tree of queues in a terminal: numbers, bars, loans and faults."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from grove.scheduler.explain.explanation import QueueRow
from grove.show.queues import tree_table

GPU = "nvidia.com/gpu"


def row(
    name: str, depth: int, own: int, used: int, share: int, most: int | None, waits: int, fault: str = ""
) -> QueueRow:
    limit = {GPU: most} if most is not None else {}
    return QueueRow(
        "ElasticQuota", name, "", depth, (GPU,), {GPU: own}, {GPU: used}, {GPU: share}, limit, {GPU: waits}, fault
    )


def painted(*rows: QueueRow, width: int = 120) -> list[str]:
    out = Console(file=StringIO(), width=width, color_system=None)
    out.print(tree_table(rows, width))
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_tree_shows_who_is_guaranteed_uses_and_waits_for_what() -> None:
    lines = painted(row("all", 0, 16, 12, 16, 16, 4), row("red", 1, 8, 10, 10, None, 0), row("blue", 1, 8, 2, 6, 8, 4))
    assert lines[0].split() == "QUEUE RESOURCE GUARANTEED USED FAIR SHARE LIMIT WAITING USE OF ITS SHARE".split()  # noqa: SIM905
    assert lines[1].startswith("all ")
    assert lines[2].startswith("  red ")
    assert lines[2].split()[1:7] == [GPU, "8", "10", "10", "–", "0"]
    assert lines[2].endswith("██████████▒▒ 2 borrowed")
    assert lines[3].endswith("████········")


def test_a_queue_that_is_wrong_says_so_instead_of_numbers() -> None:
    assert painted(row("red", 0, 8, 10, 10, None, 0, "its parents form a cycle"))[1].split()[1:] == [
        "its",
        "parents",
        "form",
        "a",
        "cycle",
    ]
