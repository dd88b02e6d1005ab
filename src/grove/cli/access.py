"""What every command that looks at a cluster shares: kubectl's flags, the connection, and how an answer is printed.

A command computes an `Answer`: a value for programs, a picture for people, an exit code. Nothing is printed before the
whole answer is known, so a pipe never carries half of one.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from grove.answers.answer import Answer, Unanswered

if TYPE_CHECKING:
    from grove.kube.client import Client
    from grove.kube.config import ClusterConfig

AUTHORITIES = "SSL_CERT_FILE"
"""The environment variable that gives OpenSSL another file of certificate authorities."""

NO_LIMIT_S = 7 * 24 * 3600.0
"""A week, where a limit is needed and none was wanted."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """kubectl's flags, before they are resolved against a kubeconfig."""

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    all_namespaces: bool = False
    output: str = ""
    impersonate: str = ""
    timeout_s: float = 30.0


class Timeout(click.ParamType[float]):
    """A time as kubectl takes it: seconds, or a number with its unit; 0 is no limit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from grove.api import duration

        if isinstance(value, float):
            return value
        try:
            seconds = float(value) if value.replace(".", "", 1).isdecimal() else duration.parse(value).total_seconds()
        except duration.InvalidDuration as error:
            self.fail(f"{error}", param, ctx)
        if seconds < 0:
            self.fail(f"{value} is less than nothing", param, ctx)
        return seconds or NO_LIMIT_S


def _flags(*, everywhere: bool, formats: Sequence[str]) -> list[Callable[[F], F]]:
    flags = [
        click.option(
            "--kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            help="The kubeconfig file. Default: $KUBECONFIG or ~/.kube/config.",
        ),
        click.option("--context", default="", help="The kubeconfig context to use."),
        click.option("-n", "--namespace", default="", help="The namespace. Default: the namespace of the context."),
        click.option("--as", "impersonate", default="", help="The user to act as."),
        click.option(
            "--request-timeout",
            "timeout_s",
            type=Timeout(),
            default="30s",
            help="How long to wait for the API server, such as 10s or 2m. 0 is no limit.",
        ),
    ]
    if everywhere:
        flags.append(click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces."))
    if formats:
        choice = click.Choice(list(formats))
        help_text = (
            "json and yaml are for programs; wide shows more columns." if "wide" in formats else "Output for programs."
        )
        flags.append(click.option("-o", "--output", type=choice, default=None, help=help_text))
    return flags


Command = Callable[..., Any]


def cluster_command(
    *, everywhere: bool = False, formats: Sequence[str] = ("json", "yaml")
) -> Callable[[Command], Command]:
    """Gives a command the flags as one `Options` argument; flags before the sub-command count too."""

    def wrap(function: Command) -> Command:
        @functools.wraps(function)
        @click.pass_context
        def called(ctx: click.Context, /, **given: Any) -> Any:
            before = ctx.find_object(Options) or Options()
            own = Options(
                given.pop("kubeconfig") or before.kubeconfig,
                given.pop("context") or before.context,
                given.pop("namespace") or before.namespace,
                given.pop("all_namespaces", False),
                given.pop("output", None) or "",
                given.pop("impersonate") or before.impersonate,
                given.pop("timeout_s"),
            )
            _load_transport()
            return function(own, **given)

        for flag in reversed(_flags(everywhere=everywhere, formats=formats)):
            called = flag(called)
        return called

    return wrap


def _load_transport() -> None:
    """Imports the HTTP library without the machine's certificate authorities.

    As it is imported, aiohttp reads all of them for a TLS context of its own, which takes 60 ms. We never use that one:
    ours is made from the kubeconfig, with these authorities where it names none, after they are back in place.
    """
    before = os.environ.get(AUTHORITIES)
    os.environ[AUTHORITIES] = os.devnull
    try:
        importlib.import_module("grove.kube.http")
    finally:
        del os.environ[AUTHORITIES]
        if before is not None:
            os.environ[AUTHORITIES] = before


def resolve(options: Options) -> tuple[ClusterConfig, str]:
    """The cluster, and the namespace to look at; empty means all of them."""
    from grove.kube.config import load_config

    config = load_config(options.kubeconfig, options.context)
    if options.impersonate:
        config = replace(config, impersonate=options.impersonate)
    namespace = "" if options.all_namespaces else options.namespace or config.namespace or "default"
    return config, namespace


def answer(options: Options, ask: Callable[[Client, str], Awaitable[Answer]]) -> int:
    """Asks the cluster and prints the answer; the exit code."""
    from grove.cli.terminal import a_word_when_it_takes_long

    with a_word_when_it_takes_long():
        reply = asked_once(options, ask)
    return show(reply, options.output)


def asked_once(options: Options, ask: Callable[[Client, str], Awaitable[T]]) -> T:
    """The answer to one question to the cluster."""
    import asyncio

    from grove.cli.asking import asked

    return asyncio.run(asked(options, ask))


def confirm(change: str, question: str) -> None:
    """Names a change and asks whether to make it. Without a terminal the user must say --yes."""
    if not sys.stdin.isatty():
        raise Unanswered(f"{change}; --yes does it without asking")
    click.echo(change)
    click.confirm(question, abort=True)


def show(reply: Answer, output: str = "") -> int:
    """Prints an answer as JSON, YAML or a picture as wide as the terminal; its exit code."""
    from grove.cli.terminal import printed, terminal

    if output:
        printed(formatted(reply.data, output))
    else:
        console = terminal()
        console.print(reply.paint(console.width))
    return reply.code


def formatted(data: Any, output: str, *, as_is: bool = False) -> str:
    """As JSON or YAML. Our own values are spelled as Kubernetes spells; a user's own object stays `as_is`."""
    import msgspec

    from grove.diagnosis.words import camel

    plain = msgspec.to_builtins(data) if as_is else camel(msgspec.to_builtins(data))
    if output == "yaml":
        import yaml

        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def complete_sets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of sets and of their parts, for the shell."""
    from grove.answers.subjects import subject_names

    return _completed(ctx, incomplete, lambda client, namespace: subject_names(client, namespace, incomplete))


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of nodes, for the shell."""
    from grove.api.core import Node

    async def names(client: Client, namespace: str) -> list[str]:
        return sorted(node.metadata.name for node in (await client.list(Node)).items)

    return _completed(ctx, incomplete, names)


def _completed(ctx: click.Context, incomplete: str, ask: Callable[[Client, str], Awaitable[list[str]]]) -> list[str]:
    """The names that begin with what is typed; none if the cluster does not answer at once."""
    import asyncio

    from grove.kube.errors import KubeError
    from grove.kube.http import HttpClient

    def option(flag: str) -> Any:
        """After the command, or before it."""
        here: click.Context | None = ctx
        while here is not None and not here.params.get(flag):
            here = here.parent
        return here.params[flag] if here is not None else None

    async def names() -> list[str]:
        config, namespace = resolve(Options(option("kubeconfig"), option("context") or "", option("namespace") or ""))
        async with HttpClient(config, attempts=1, timeout_s=2.0) as client:
            return await ask(client, namespace)

    try:
        return [name for name in asyncio.run(names()) if name.startswith(incomplete)]
    except (KubeError, OSError):
        return []


def address(context: click.Context, option: click.Parameter, value: str) -> str:
    """An address that a browser or a client may follow."""
    if value and not value.startswith(("http://", "https://")):
        raise click.BadParameter("an address begins with http:// or https://")
    return value


PROMETHEUS = "GROVE_PROMETHEUS"
"""The environment variable with the address of a Prometheus, for every command that reads one."""


def prometheus_option(text: str) -> Callable[[F], F]:
    """`--prometheus`: the address of a Prometheus, also from the environment."""
    return click.option(
        "--prometheus", metavar="URL", default="", envvar=PROMETHEUS, show_envvar=True, callback=address, help=text
    )
