"""The `grove` command: one sub-command a process or task, each loaded only when it is asked for.

Loading lazily keeps `grove startup`, which runs in every pod that waits, small and quick.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from grove import __version__
from grove.cli.examples import epilog

COMMANDS: dict[str, tuple[str, str]] = {
    "crds": ("grove.cli.crds:crds", "Print the CRDs, or install and upgrade them."),
    "demo": ("grove.cli.demo:demo", "Show an inference system on a cluster inside this process."),
    "down": ("grove.cli.local:down", "Stop the local cluster that `grove up` started."),
    "fleet": ("grove.cli.fleet:fleet", "Run a whole fleet for weeks of simulated time, and report on it."),
    "metrics": ("grove.cli.metrics:metrics", "Serve the metrics of engines to autoscalers."),
    "nodes": ("grove.cli.nodes:nodes", "Run fake GPU nodes on a real API server."),
    "operator": ("grove.cli.operator:operator", "Run the operator on a cluster."),
    "record": ("grove.cli.fleet:record", "Write a fleet file from what happens on a live cluster."),
    "replay": ("grove.cli.scheduler:replay", "Repeat the recorded decisions of a scheduler and compare."),
    "scheduler": ("grove.cli.scheduler:scheduler", "Run the gang scheduler on a cluster."),
    "simulate": ("grove.cli.simulate:simulate", "Run your manifests on a simulated cluster and show the result."),
    "startup": ("grove.cli.startup:startup", "Wait for the cliques that a pod starts after (runs in grove-initc)."),
    "up": ("grove.cli.local:up", "Start a real control plane with fake GPU nodes on this machine."),
    "version": ("grove.cli.version:version", "Print Grove's version."),
    "webhooks": ("grove.cli.webhooks:webhooks", "Show or remove the webhook configurations of admission."),
}
ASKING: dict[str, tuple[str, str]] = {
    "console": ("grove.cli.console:console", "Show the fleet, the sets, and why gangs wait, in a browser."),
    "completion": (
        "grove.cli.completion:completion",
        "Print the script with which a shell completes commands and names.",
    ),
    "convert": ("grove.cli.convert:convert", "Convert manifests of older and other APIs to PodCliqueSets."),
    "doctor": ("grove.cli.doctor:doctor", "Check the installation, and say how to repair each fault."),
    "events": ("grove.cli.events:events", "Show what happened to a set or a gang, in order of time."),
    "exec": ("grove.cli.logs:exec_", "Run a command in a pod that you name by its role (kubectl exec)."),
    "explain": ("grove.cli.explain:explain", "Say why a set or a gang does not run, and what would help."),
    "logs": ("grove.cli.logs:logs", "Print logs of one or several pods that you name by their role."),
    "plan": ("grove.cli.plan:plan", "Say whether a change fits now, where, and what it evicts. Writes nothing."),
    "queue": ("grove.cli.explain:queue", "List waiting gangs in order, and what each waits for."),
    "rollout": (
        "grove.cli.rollout:rollout",
        "Show, pause, resume or undo an update; list earlier templates; restart.",
    ),
    "restart": ("grove.cli.restart:restart", "Restart a set, a gang, an instance of a group, or a pod (writes)."),
    "reserve": ("grove.cli.reserve:reserve", "Hold capacity for a set before it exists (writes)."),
    "repack": ("grove.cli.repack:repack", "Say which gangs to move so that a waiting gang fits (--apply writes)."),
    "scale": (
        "grove.cli.scale:scale",
        "Scale a set, a scaling group or a clique by its name in the manifest (writes).",
    ),
    "scaleref": ("grove.cli.scale:scaleref", "Print the scaleTargetRef for an HPA or a KEDA ScaledObject."),
    "status": ("grove.cli.tree:status", "List the sets, one line for each, the worst state first."),
    "takeover": ("grove.cli.takeover:takeover", "Show sets that the Go operator made; --back returns sets to it."),
    "top": ("grove.cli.top:top", "Show a live screen of sets, gangs and the fleet."),
    "topology": (
        "grove.cli.topology:topology",
        "Show zones, blocks, racks and nodes: how full they are, and their gangs.",
    ),
    "tree": ("grove.cli.tree:tree", "Show a set as a tree of its parts, with faults and nodes."),
    "usage": ("grove.cli.usage:usage", "Show GPU-hours by set and team, their use and their cost."),
}
"""What people ask of a cluster: also what `kubectl grove` offers."""


class LazyGroup(click.Group):
    """Sub-commands by name, imported on use; the help text comes from the table, not from importing them all."""

    table: dict[str, tuple[str, str]] = {**COMMANDS, **ASKING}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module, _, attribute = self.table[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        command.epilog = epilog(name) or command.epilog
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, part in (("Ask a cluster", ASKING), ("Run Grove", COMMANDS)):
            names = sorted(part.keys() & self.table.keys())
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, part[name][1]) for name in names])


@click.command(
    cls=LazyGroup,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="grove")
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error. You can put it anywhere.")
@click.pass_context
def grove(ctx: click.Context, verbose: bool) -> None:
    """Grove: whole inference systems on Kubernetes, placed as one gang."""
    help_alone(ctx)


def help_alone(ctx: click.Context) -> None:
    """The help as help, when nothing else was asked for."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    argv = sys.argv[1:]
    if argv and argv[0] in ASKING:
        run_and_leave(grove, argv)
    run(grove, argv)


def run_and_leave(command: click.Command, argv: list[str], *, prog: str = "grove") -> NoReturn:
    """Runs a command that leaves nothing to be tidied up, and ends the process at once.

    Python would take ten thousand pods apart one by one before it ends, which takes longer than most answers. In
    a process of a second or two, garbage collection frees nothing useful.
    """
    gc.disable()
    # numpy's algebra starts a thread a core, which spins for a tenth of a second and never has anything to do here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        run(command, argv, prog=prog)
    except SystemExit as end:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)


def without_verbose(argv: list[str]) -> tuple[list[str], bool]:
    """The arguments without -v, wherever before `--` it stands, and whether it was there."""
    end = argv.index("--") if "--" in argv else len(argv)
    kept = [argument for argument in argv[:end] if argument not in ("-v", "--verbose")]
    return [*kept, *argv[end:]], len(kept) < end


def run(command: click.Command, argv: list[str], *, prog: str = "grove") -> NoReturn:
    """Runs a command; what goes wrong with the cluster or the input is one line on stderr and exit code 2."""
    argv, verbose = without_verbose(argv)
    try:
        code: Any = command.main(args=argv, prog_name=prog, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        where = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see {where.command_path} --help)" if where is not None else ""
        click.echo(f"error: {' '.join(error.format_message().split())}{hint}", err=True)
        for fault in getattr(error, "faults", ()):
            click.echo(f"  - {fault}", err=True)
        sys.exit(error.exit_code)
    except Exception as error:
        from grove.kube.errors import Forbidden, KubeError

        if verbose or not isinstance(error, KubeError | OSError):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        lacks_a_right = isinstance(error, Forbidden) and "denied the request" not in text  # which a webhook says
        hint = DOCTOR if lacks_a_right else _local_hint(text)
        click.echo(f"error: {text}{hint}", err=True)
        sys.exit(2)


DOCTOR = "; kubectl grove doctor says what you may do here, and what to ask for"


def _local_hint(text: str) -> str:
    """A hint if the cluster that was not found may be that of `grove up`."""
    if text.startswith("cannot reach ") and any(f"//{host}:" in text for host in ("127.0.0.1", "localhost")):
        return "; if it is the cluster of `grove up`, that starts it again"
    local = os.path.expanduser("~/.grove/local")
    if text.startswith("no cluster: ") and os.path.exists(f"{local}/state.json"):
        return f"; `grove up` has one: export KUBECONFIG={local}/kubeconfig"
    return ""
