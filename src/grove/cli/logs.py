"""`logs` and `exec`, by role instead of by pod name: `chat/decode/0 leader`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from grove.answers.answer import Unanswered
from grove.cli.access import Options, asked_once, cluster_command, complete_sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grove.diagnosis.roles import Player

COMMAND = "grove.exec.command"
MOST_AT_ONCE = 32
_WHICH = click.option("--replica", type=click.IntRange(0), help="Only this replica of the set.")
_CONTAINER = click.option("-c", "--container", default="", help="The container. Default: the first of the pod.")


@click.command()
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE[/REPLICA]]", shell_complete=complete_sets)
@click.argument("clique", required=False, default="")
@click.option("-f", "--follow", is_flag=True, help="Also print new lines.")
@click.option("--tail", type=click.IntRange(0), help="Only the last N lines of each pod.")
@click.option("--since", default="", help="Only lines that are newer than this, such as 10m.")
@click.option("--previous", is_flag=True, help="Logs from before the last restart of the container.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@_CONTAINER
@_WHICH
@cluster_command(formats=())
def logs(
    options: Options,
    target: str,
    clique: str,
    follow: bool,
    tail: int | None,
    since: str,
    previous: bool,
    timestamps: bool,
    container: str,
    replica: int | None,
) -> int:
    """Print logs of pods by role. With several pods, each line starts with the name of its pod.

    chat is every pod, chat/decode those of a scaling group or clique, chat/decode/0 one replica of the group. pg/NAME,
    pclq/NAME, pcsg/NAME and pod/NAME are those of an object.
    """
    import asyncio
    import gc

    from grove.answers.logs import chosen
    from grove.cli.log_stream import _stream

    gc.enable()
    players = asked_once(options, lambda client, namespace: chosen(client, namespace, target, clique, replica))
    if len(players) > MOST_AT_ONCE and follow:
        raise Unanswered(f"{len(players)} pods at once are too many to follow; name a group, a replica or a clique")
    query = {
        "timestamps": "true" if timestamps else "",
        "previous": "true" if previous else "",
        "container": container,
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": _seconds(since),
    }
    return asyncio.run(_stream(options, players, {k: v for k, v in query.items() if v}, follow=follow))


def _seconds(since: str) -> str:
    from grove.api import duration

    if not since:
        return ""
    try:
        return str(max(1, int(duration.parse(since).total_seconds())))
    except duration.InvalidDuration as error:
        raise Unanswered(f"--since {since}: {error}") from error


class Exec(click.Command):
    """A command whose arguments after `--` belong to another program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(name="exec", cls=Exec)
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE[/REPLICA]]", shell_complete=complete_sets)
@click.argument("clique", required=False, default="")
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass standard input to the command.")
@click.option("-t", "--tty", is_flag=True, help="Standard input is a terminal.")
@_CONTAINER
@_WHICH
@cluster_command(formats=())
def exec_(
    options: Options, target: str, clique: str, with_stdin: bool, tty: bool, container: str, replica: int | None
) -> int:
    """Run a command in the first pod of a role, with `kubectl exec`: chat/decode/0 leader -- nvidia-smi."""
    import shutil

    from grove.answers.logs import chosen

    command: tuple[str, ...] = click.get_current_context().meta.get(COMMAND, ())
    if not command:
        raise click.UsageError("give a command after --")
    players = asked_once(options, lambda client, namespace: chosen(client, namespace, target, clique, replica))
    argv = exec_argv(options, players[0], command, with_stdin=with_stdin, tty=tty, container=container)
    if shutil.which(argv[0]) is None:
        raise Unanswered("kubectl is not on your PATH; exec is its work")
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is the point


def exec_argv(
    options: Options, player: Player, command: Sequence[str], *, with_stdin: bool, tty: bool, container: str
) -> list[str]:
    meta = player.pod.metadata
    argv = ["kubectl"]
    argv += [f"--kubeconfig={options.kubeconfig}"] if options.kubeconfig else []
    argv += [f"--context={options.context}"] if options.context else []
    argv += [f"--as={options.impersonate}"] if options.impersonate else []
    argv += ["exec", "-n", meta.namespace, meta.name]
    argv += ["-c", container] if container else []
    argv += ["-i"] if with_stdin else []
    argv += ["-t"] if tty else []
    return [*argv, "--", *command]
