"""`rollout promote`: lowers a partition, so that the units that it held back get the new template."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grove.cli.access import confirm

if TYPE_CHECKING:
    from grove.answers.promote import Promotion


def confirm_promotion(asked: Promotion) -> None:
    if asked.before == asked.after:
        return
    change = f"promote of {asked.target} lowers its partition from {asked.before} to {asked.after}"
    confirm(f"{change}; {asked.moves}", "lower the partition?")
