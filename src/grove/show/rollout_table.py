"""An update of a set as text: its sentence, what is down, and a table of the cliques."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from grove.diagnosis.processes import Process
from grove.diagnosis.rollouts import DONE, IN_SENTENCE, Rollout
from grove.diagnosis.states import CODES, PAUSED, STYLES, UPDATING
from grove.show.columns import table


def painted(name: str, rollout: Rollout, operator: Process, width: int) -> RenderableType:
    """The sentence, what is down, the parts of the update, then each role with its images and hashes, old and new.

    If the operator is down, that comes first.
    """
    style = "green" if rollout.state == DONE else STYLES[rollout.state]
    head = Text().append(f"{name}: ", style="bold").append(rollout.sentence, style=style)
    rows: list[tuple[str, ...]] = []
    for role in rollout.roles:
        old = ", ".join(role.old_images) if role.old_images != (role.image,) else "the same"
        before = f"{old} ({', '.join(role.old_hashes)})" if role.old_hashes else ""
        rows.append((role.clique, f"{role.updated}/{role.pods}", f"{role.image} ({role.hash})", before))
    titles: tuple[str, ...] = ("CLIQUE", "UPDATED", "NEW", "OLD")
    if not any(row[3] for row in rows):
        titles, rows = titles[:3], [row[:3] for row in rows]
    lines = [
        Text(f"{down.state}, waits for {down.waits_for or 'its pods'}", style="yellow")
        for down in rollout.down[IN_SENTENCE:]
    ]
    first = [Text(operator.sentence, style="bold red")] if operator.is_down else []
    if rollout.set_state not in ("", PAUSED, UPDATING) and CODES[rollout.set_state] and not operator.is_down:
        first.append(Text(f"{name} is {rollout.set_state}: {rollout.set_reason}", style=STYLES[rollout.set_state]))
    more = [Text(line, style="dim") for line in rollout.lines]
    return Group(*first, head, *lines, *more, table(titles, rows, width))
