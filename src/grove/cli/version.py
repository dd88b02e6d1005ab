"""`grove version`."""

import click

from grove import __version__


@click.command()
def version() -> None:
    """Print Grove's version."""
    click.echo(f"grove {__version__}")
