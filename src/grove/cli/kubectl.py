"""`kubectl grove`: the questions people ask of a cluster with Grove. Read-only unless a command's help says otherwise.

kubectl finds the script by its name (`kubectl-grove`); the same commands hang on `grove` itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from grove import __version__
from grove.cli.main import ASKING, LazyGroup, help_alone, run_and_leave


class Asking(LazyGroup):
    table = ASKING


@click.command(
    cls=Asking,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="kubectl grove")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig file. Default: $KUBECONFIG or ~/.kube/config.",
)
@click.option("--context", default="", help="The kubeconfig context to use.")
@click.option("-n", "--namespace", default="", help="The namespace. Default: the namespace of the context.")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error. You can put it anywhere.")
@click.pass_context
def kubectl_grove(ctx: click.Context, kubeconfig: Path | None, context: str, namespace: str, verbose: bool) -> None:
    """Ask a cluster about its PodCliqueSets and gangs.

    Exit codes: 0 all is well, 2 the question could not be answered, 3 something starts or is updated, 4 something waits
    or is broken, 5 something is degraded.
    """
    from grove.cli.access import Options

    ctx.obj = Options(kubeconfig, context, namespace)
    help_alone(ctx)


def main() -> None:
    run_and_leave(kubectl_grove, sys.argv[1:], prog="kubectl grove")


if __name__ == "__main__":
    main()
