"""`grove startup`, for people who look for it.

The init container runs `python -m grove.startup`, which skips the command line's imports.
"""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def startup(arguments: tuple[str, ...]) -> int:
    """Wait for the pods that this pod starts after."""
    from grove.startup.main import main

    return main(arguments)
