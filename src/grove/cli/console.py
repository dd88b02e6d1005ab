"""`grove console`: the page for people who would rather look. What it answers, the other commands answer too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grove.cli.access import Options, address, cluster_command, resolve
from grove.cli.events import decided_about, journal_option, templates_of

if TYPE_CHECKING:
    from aiohttp import web

    from grove.cli.access import Answer
    from grove.console.trends import Trends
    from grove.console.viewers import Owner, Question
    from grove.demo.scenario import Scenario
    from grove.kube.client import Client
    from grove.kube.connection import ClusterConfig

PORT = 8321


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; a free one if absent.")
@click.option("--open/--no-open", "opens", default=True, help="Open the page in a browser.")
@click.option("--in-cluster", is_flag=True, help="Serve everyone who brings a token of their own, on all addresses.")
@click.option("--host", "hosts", multiple=True, help="A name that the console is called by, such as console.example.")
@click.option("--token-header", default="", help="Where an authenticating proxy in front puts the viewer's token.")
@click.option("--prometheus", default="", callback=address, help="A Prometheus, for figures from before the page.")
@click.option("--grafana", default="", callback=address, help="A Grafana with Grove's dashboard, for links to it.")
@journal_option
@click.option("--logs-link", default="", callback=address, help="A page of logs: {namespace}, {name}, {pod} in it.")
@cluster_command(formats=())
def console(
    options: Options,
    port: int,
    opens: bool,
    in_cluster: bool,
    hosts: tuple[str, ...],
    token_header: str,
    prometheus: str,
    grafana: str,
    logs_link: str,
    journal: Path | None,
) -> int:
    """A page with the fleet, the sets, why gangs wait, the queue and plans. It has your rights, and changes nothing.

    \b
    Examples:
      grove console                     # prints a link to this machine and opens it
      grove console --context prod --no-open --port 8321
      grove console --prometheus http://127.0.0.1:9090 --grafana https://grafana.example.com
    """
    import asyncio
    import gc

    from grove.kube.logs import configure_logs

    configure_logs("error" if not in_cluster else "info", "text" if not in_cluster else "json")
    gc.enable()
    config, _ = resolve(options)
    trends = _trends(prometheus, grafana, logs_link)
    if in_cluster and journal is not None:
        raise click.UsageError("--journal shows the decisions about every namespace: not with --in-cluster")
    if in_cluster:
        asyncio.run(_serve_guests(config, port or PORT, hosts, token_header, trends))
    else:
        asyncio.run(_serve_owner(config, port, opens, trends, journal))
    return 0


def _trends(prometheus: str, grafana: str, logs: str) -> Trends:
    from grove.console.trends import Trends
    from grove.show.prometheus import Prometheus

    return Trends(Prometheus(prometheus) if prometheus else None, grafana.rstrip("/"), logs)


async def _serve_owner(
    config: ClusterConfig, port: int, opens: bool, trends: Trends, journal: Path | None = None
) -> None:
    from grove.api.podcliqueset import PodCliqueSet
    from grove.console.viewers import ClusterViewer, Followings, Owner

    followings = Followings(config)
    viewer = ClusterViewer(config, followings)
    try:
        if not await viewer.client.serves(PodCliqueSet):
            raise click.ClickException(
                "Grove is not installed on this cluster; `grove crds --apply` installs its kinds"
            )
        await serve_page(Owner(viewer, "local"), port, opens=opens, trends=trends, journal=journal)
    finally:
        await followings.close()
        await viewer.close()


async def _serve_guests(
    config: ClusterConfig, port: int, hosts: tuple[str, ...], token_header: str, trends: Trends
) -> None:
    from grove.console.server import Console
    from grove.console.viewers import Followings, Guests

    # The console's own account is for finding the API server only; every request is made with a viewer's token.
    followings = Followings(config)
    guests = Guests(config, followings)
    app = Console(guests, questions(), hosts=hosts, token_header=token_header, trends=trends).application()
    try:
        # In a pod, behind a Service; whoever reaches it still needs a token of their own.
        await _serve(app, "0.0.0.0", port, lambda bound: click.echo(f"serving on port {bound}", err=True))  # noqa: S104
    finally:
        await followings.close()
        await guests.close()


async def serve_page(
    owner: Owner,
    port: int,
    *,
    opens: bool,
    act: Any = None,
    trends: Trends | None = None,
    journal: Path | None = None,
) -> None:
    """Serves one person on this machine until interrupted, behind a link that opens once."""
    from grove.console.server import Console

    bound_port = port

    def say(link: str) -> None:
        click.echo(f"http://127.0.0.1:{bound_port}/#link={link}", err=False)

    def listening(bound: int) -> None:
        nonlocal bound_port
        bound_port = bound
        link = owner.new_link()
        click.echo("open this in a browser; it works once, and a new one is printed when it was used (Ctrl-C ends it):")
        say(link)
        if opens:
            _open(f"http://127.0.0.1:{bound}/#link={link}")

    owner.said = say
    app = Console(owner, questions(journal), act=act, trends=trends).application()
    await _serve(app, "127.0.0.1", port, listening)


def _open(url: str) -> None:
    """Opens a browser where there is one to open; a terminal over SSH has the link."""
    import os
    import sys
    import webbrowser

    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


async def _serve(app: web.Application, host: str, port: int, listening: Callable[[int], None]) -> None:
    import asyncio
    import signal

    from aiohttp import web

    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        listening(runner.addresses[0][1])
        ended = asyncio.Event()
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, ended.set)
        await ended.wait()
    finally:
        await runner.cleanup()


def tour_in_browser(plot: Scenario, *, nodes: int | None, seed: int, speed: float, port: int, opens: bool) -> None:
    """`grove demo --web`: the guided tour on a page."""
    import asyncio

    from grove.console.tour import Tour
    from grove.console.viewers import Owner

    async def show() -> None:
        tour = Tour(plot, nodes=nodes, seed=seed, speed=speed)
        try:
            await serve_page(Owner(tour, "tour"), port, opens=opens, act=tour.act)
        finally:
            await tour.stop()

    asyncio.run(show())


# Questions


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime.now(UTC)


def _time_of(given: Mapping[str, Any]) -> Any:
    """The time on the clock of the page, where it shows a story that has a time of its own."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(str(given["now"])) if given.get("now") else _now()
    except ValueError:
        raise click.UsageError("now must be a time as Kubernetes writes it") from None


def questions(journal: Path | None = None) -> Mapping[str, Question]:
    """What the page may ask. `journal` is what a scheduler recorded, for the history of gangs."""
    return {
        "tree": _tree,
        "events": _events,
        "why": _why,
        "queue": _queue,
        "plan": _plan,
        "object": _object,
        "queues": _queues,
        "rollout": _rollout,
        "history": _history_with(journal),
        "autoscalers": _autoscalers,
        "logs": _logs,
        "usage": _usage,
    }


def _answers(ask: Callable[..., Coroutine[Any, Any, Any]]) -> Question:
    """Shows an error of a command in the page."""

    @functools.wraps(ask)
    async def asked(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
        from grove.console.viewers import Unanswerable

        try:
            found: Any = await ask(client, namespace, given)
        except click.ClickException as error:
            raise Unanswerable(error.format_message()) from error
        except KeyError as error:
            raise Unanswerable(f"the question lacks {error.args[0]}") from error
        return found

    return asked


@_answers
async def _tree(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    from grove.cli.tree import tree_answer

    return (await tree_answer(client, namespace, str(given["name"]))).data


@_answers
async def _events(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    from grove.cli.events import events_answer

    return (await events_answer(client, namespace, str(given["name"]))).data


@_answers
async def _rollout(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    from grove.cli.rollout import status_answer

    return (await status_answer(client, namespace, str(given["name"]), _time_of(given))).data


def _history_with(journal: Path | None) -> Question:
    """The picture of the life of a set or of one of its gangs; what `events` says of it, in lanes."""

    @_answers
    async def _history(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
        import asyncio

        from grove.api.core import Event
        from grove.cli.subjects import set_called
        from grove.diagnosis.seen import every, read
        from grove.show.history import history_of

        seen = await set_called(client, namespace, str(given["name"]), read)
        happened, kept = await every(client, Event, namespace), await templates_of(client, seen.sets[0])
        decided = await asyncio.to_thread(decided_about, journal, seen, seen.gangs) if journal is not None else ()
        return history_of(seen, seen.sets[0], happened, _time_of(given), kept, str(given.get("gang") or ""), decided)

    return _history


@_answers
async def _autoscalers(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """The autoscalers of a set, and why each does not change the replicas."""
    from grove.cli.autoscalers import read_autoscalers
    from grove.cli.subjects import set_called
    from grove.diagnosis.autoscalers import autoscaler_lines
    from grove.diagnosis.seen import read

    seen = await set_called(client, namespace, str(given["name"]), read)
    return autoscaler_lines(await read_autoscalers(client, namespace), seen)


MOST_PODS, LOG_LINES = 8, 100


@_answers
async def _logs(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """The last lines of the pods of a set or of a part of it, for viewers who may read them."""
    from grove.cli.logs import chosen, latest_lines

    found = await chosen(client, namespace, str(given["name"]))
    pods = [one.pod for one in found][:MOST_PODS]
    lines = await latest_lines(client, pods, LOG_LINES)
    return {"pods": [{"pod": pod, "lines": said} for pod, said in lines.items()], "more": len(found) - len(pods)}


@_answers
async def _why(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    from grove.cli.explain import explain_answer

    return (await explain_answer(client, namespace, str(given["name"]))).data


@_answers
async def _queue(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    from grove.cli.explain import queue_answer

    return (await queue_answer(client, namespace, _time_of(given))).data


@_answers
async def _queues(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    from grove.cli.explain import tree_answer

    return (await tree_answer(client)).data


@_answers
async def _usage(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """GPU-hours by team and set; or why there are none, which is no fault of the question."""
    from grove.cli.usage import counted_usage
    from grove.kube.errors import Forbidden

    try:
        return await counted_usage(client, namespace)
    except (click.ClickException, Forbidden) as error:
        return {"note": error.format_message() if isinstance(error, click.ClickException) else str(error)}


@_answers
async def _plan(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """Reads a copy of the cluster with the viewer's rights; the plan itself is computed beside the server."""
    from grove.cli.plan import plan_answer
    from grove.cli.settings import settings_of
    from grove.console.viewers import Later
    from grove.plan.copying import copy_cluster
    from grove.sim.loop import run

    manifests = _manifests(str(given.get("manifest") or ""))
    scales, drains = _words(given.get("scale")), _words(given.get("drain"))
    if sum(map(bool, (manifests, scales, drains))) != 1:
        raise click.UsageError("give a manifest with a PodCliqueSet, or what to scale, or which node to drain")
    copy, settings = await copy_cluster(client, None), await settings_of(client)

    def work() -> Any:
        from grove.console.viewers import Unanswerable

        try:
            answer: Answer = run(
                plan_answer(copy, namespace or "default", manifests, scales, drains, settings=settings)
            )
        except click.ClickException as error:
            raise Unanswerable(error.format_message()) from error
        return answer.data

    return Later(work)


def _manifests(text: str) -> list[Any]:
    import yaml

    from grove.demo.scenario import as_json, yaml_fault

    if not text.strip():
        return []
    try:
        documents = [as_json(one) for one in yaml.safe_load_all(text) if one is not None]
    except yaml.YAMLError as error:
        raise click.UsageError(f"not YAML: {yaml_fault(error)}") from error
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") == "PodCliqueSet"]
    for one in found:
        if not isinstance((one.get("metadata") or {}).get("name"), str):
            raise click.UsageError("a PodCliqueSet has no metadata.name")
    if not found:
        raise click.UsageError("there is no PodCliqueSet in it")
    return found


def _words(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)] if value else []


_KINDS = {
    "PodCliqueSet": "podcliqueset:PodCliqueSet",
    "PodClique": "podclique:PodClique",
    "PodGang": "podgang:PodGang",
    "PodCliqueScalingGroup": "scalinggroup:PodCliqueScalingGroup",
    "Pod": "core:Pod",
    "Node": "core:Node",
    "ClusterTopologyBinding": "topology:ClusterTopologyBinding",
}


@_answers
async def _object(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """An object as YAML, read with the viewer's own rights."""
    import importlib

    import yaml

    where = _KINDS.get(str(given["kind"]))
    if where is None:
        raise click.UsageError(f"the console does not show objects of kind {given['kind']}")
    module, _, name = where.partition(":")
    resource = getattr(importlib.import_module(f"grove.api.{module}"), name).RESOURCE
    found = dict(await client.get(resource, str(given["name"]), namespace if resource.namespaced else ""))
    (found.get("metadata") or {}).pop("managedFields", None)
    return {"yaml": yaml.safe_dump(found, sort_keys=False, allow_unicode=True)}
