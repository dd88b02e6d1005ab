"""`completion`: what a shell needs to complete commands, flags and the names of sets."""

from __future__ import annotations

import click

KUBECTL = """#!/bin/sh
# Completes `kubectl grove`: save it as kubectl_complete-grove on your PATH, and make it executable.
COMP_WORDS="grove $*" COMP_CWORD=$# _GROVE_COMPLETE=bash_complete grove | sed 's/^[a-z]*,//'
echo :4
"""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "kubectl"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell, or the script that kubectl calls.

    For bash: grove completion bash > /etc/bash_completion.d/grove
    """
    from click.shell_completion import get_completion_class

    from grove.cli.main import grove
    from grove.cli.terminal import printed

    if shell == "kubectl":
        printed(KUBECTL)
        return
    script = get_completion_class(shell)
    assert script is not None
    printed(script(grove, {}, "grove", "_GROVE_COMPLETE").source() + "\n")
