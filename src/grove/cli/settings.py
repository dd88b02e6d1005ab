"""How the cluster's own scheduler is set up, so that answers of this program are those it would give.

The chart keeps the settings in a ConfigMap. Who may not read it, or runs the scheduler another way, gives the same file
with `--scheduler-config`; otherwise the defaults have to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def settings_option(command: Callable[..., Any]) -> Callable[..., Any]:
    option = click.option(
        "--scheduler-config",
        "settings",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The scheduler's SchedulerConfiguration file; by default as the cluster has it.",
    )
    return option(command)
