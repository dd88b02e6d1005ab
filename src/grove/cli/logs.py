"""`logs` and `exec`, by role instead of by pod name: `chat/decode/0 leader`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from grove.answers.answer import Unanswered
from grove.cli.access import Options, asked_once, cluster_command, complete_sets, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grove.diagnosis.roles import Player

COMMAND = "grove.exec.command"
MOST_AT_ONCE = 32
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")
_WHICH = click.option("--replica", type=click.IntRange(0), help="Of this replica of the set only.")
_CONTAINER = click.option("-c", "--container", default="", help="The container; the first of the pod if absent.")


@click.command()
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE[/REPLICA]]", shell_complete=complete_sets)
@click.argument("clique", required=False, default="")
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option("--tail", type=click.IntRange(0), help="Only so many of the last lines of each pod.")
@click.option("--since", default="", help="Only what is newer than this, such as 10m.")
@click.option("--previous", is_flag=True, help="Of the container before its last restart.")
@click.option("--timestamps", is_flag=True, help="With the time of each line.")
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
    """Logs of pods by the part they play; several pods are interleaved, each line with whose it is.

    chat is every pod, chat/decode those of a scaling group or clique, chat/decode/0 one replica of the group. pg/NAME,
    pclq/NAME, pcsg/NAME and pod/NAME are those of an object.
    """
    import asyncio
    import gc

    from grove.answers.logs import chosen

    gc.enable()
    found = asked_once(options, lambda client, namespace: chosen(client, namespace, target, clique, replica))
    if len(found) > MOST_AT_ONCE and follow:
        raise Unanswered(f"{len(found)} pods at once are too many to follow; name a group, a replica or a clique")
    query = {
        "timestamps": "true" if timestamps else "",
        "previous": "true" if previous else "",
        "container": container,
        "tailLines": "" if tail is None else str(tail),
        "sinceSeconds": _seconds(since),
    }
    return asyncio.run(_stream(options, found, {k: v for k, v in query.items() if v}, follow=follow))


def _seconds(since: str) -> str:
    from grove.api import duration

    if not since:
        return ""
    try:
        return str(max(1, int(duration.parse(since).total_seconds())))
    except duration.InvalidDuration as error:
        raise Unanswered(f"--since {since}: {error}") from error


async def _stream(options: Options, found: Sequence[Player], query: dict[str, str], *, follow: bool) -> int:
    import asyncio

    from grove.cli.terminal import terminal
    from grove.kube.errors import KubeError
    from grove.kube.http import HttpClient
    from grove.kube.logs import configure_logs

    configure_logs("error", "text")
    console = terminal()
    labels = labels_of(found)
    wide = max(len(label) for label in labels)
    config, _ = resolve(options)
    failed: dict[str, list[str]] = {}

    async def one(client: HttpClient, at: int, player: Player) -> None:
        pod = player.pod
        style = COLOURS[at % len(COLOURS)]
        container = query.get("container") or (pod.spec.containers[0].name if pod.spec.containers else "")
        asked = {**query, "container": container} | ({"follow": "true"} if follow else {})
        try:
            async for line in client.log_lines(pod.metadata.namespace, pod.metadata.name, asked):
                say(console, labels[at].ljust(wide) if len(found) > 1 else "", line, style)
        except KubeError as error:
            failed.setdefault(" ".join(str(error).split()), []).append(pod.metadata.name)

    async with HttpClient(config, user_agent="kubectl-grove", attempts=2, timeout_s=options.timeout_s) as client:
        if follow:
            await asyncio.gather(*(one(client, at, player) for at, player in enumerate(found)))
        else:  # in order, so that a pipe gets the same twice
            for at, player in enumerate(found):
                await one(client, at, player)
    for line in told_failures(failed):
        click.echo(f"error: {line}", err=True)
    return 2 if sum(map(len, failed.values())) == len(found) else 0


def told_failures(failed: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One line a reason, with the pods that have it."""
    from grove.answers.logs import NO_ADDRESS
    from grove.api.words import many

    for why, pods in failed.items():
        more = f" and {many(len(pods) - 1, 'other pod')}" if len(pods) > 1 else ""
        hint = "; its node has no kubelet that could be asked, as fake nodes have none" if NO_ADDRESS in why else ""
        yield f"{pods[0]}{more}: {why}{hint}"


def labels_of(found: Sequence[Player]) -> list[str]:
    several = len({one.replica for one in found}) > 1
    return [one.label(many_replicas=several) for one in found]


def say(console: Any, label: str, line: str, style: str) -> None:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ignore")
    if label:
        text.append(f"{label} │ ", style=style)
    text.append(line)
    console.print(text, soft_wrap=True)


class Exec(click.Command):
    """What stands after `--` is another program's, down to its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(name="exec", cls=Exec)
@click.argument("target", metavar="PCS[/GROUP|/CLIQUE[/REPLICA]]", shell_complete=complete_sets)
@click.argument("clique", required=False, default="")
@click.option("-i", "--stdin", "with_stdin", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="Standard input is a terminal.")
@_CONTAINER
@_WHICH
@cluster_command(formats=())
def exec_(
    options: Options, target: str, clique: str, with_stdin: bool, tty: bool, container: str, replica: int | None
) -> int:
    """Run a command in the first pod that plays a part, by `kubectl exec`: chat/decode/0 leader -- nvidia-smi."""
    import shutil

    from grove.answers.logs import chosen

    command: tuple[str, ...] = click.get_current_context().meta.get(COMMAND, ())
    if not command:
        raise click.UsageError("give a command after --")
    found = asked_once(options, lambda client, namespace: chosen(client, namespace, target, clique, replica))
    argv = exec_argv(options, found[0], command, with_stdin=with_stdin, tty=tty, container=container)
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
