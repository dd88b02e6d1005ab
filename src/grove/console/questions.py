"""Questions that the page asks the server. The commands give the same answers: both call `grove.answers`."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from grove.answers.answer import Answer, Unanswered
from grove.answers.autoscalers import read_autoscalers
from grove.answers.events import decided_about, events_answer, templates_of
from grove.answers.explain import explain_answer, queue_answer, queues_answer
from grove.answers.logs import chosen, latest_lines
from grove.answers.plan import check_fields, plan_answer
from grove.answers.rollout import status_answer
from grove.answers.settings import settings_of
from grove.answers.subjects import set_called
from grove.answers.tree import tree_answer
from grove.answers.usage import counted_usage, past_usage
from grove.api.core import Event
from grove.api.quantity import format_amount
from grove.console.viewers import Later, Question, Unanswerable
from grove.demo.scenario import manifests_in, no_set
from grove.diagnosis.autoscalers import autoscaler_lines
from grove.diagnosis.seen import every, read
from grove.kube.client import Client
from grove.kube.errors import Forbidden
from grove.plan.copying import copy_cluster
from grove.plan.given import Given, given_in, read_known
from grove.show.history import history_of
from grove.show.prometheus import Prometheus
from grove.sim.loop import run


def _now() -> Any:
    return datetime.now(UTC)


def _time_of(given: Mapping[str, Any]) -> Any:
    """The time on the clock of the page, where it shows a story that has a time of its own."""
    try:
        return datetime.fromisoformat(str(given["now"])) if given.get("now") else _now()
    except ValueError:
        raise click.UsageError("now must be a time as Kubernetes writes it") from None


def questions(journal: Path | None = None, prometheus: Prometheus | None = None) -> Mapping[str, Question]:
    """The questions that the page can send. `journal` is a scheduler's record, for the history of gangs.

    `prometheus` has the GPU-hours of the past.
    """
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
        "usage": _usage_of(prometheus),
    }


def _message(error: click.ClickException) -> str:
    """The message of an error of a command, with every fault of a manifest."""
    message, faults = error.format_message(), error.faults if isinstance(error, Unanswered) else ()
    return f"{message}: {'; '.join(faults)}" if faults else message


def _answers(ask: Callable[..., Coroutine[Any, Any, Any]]) -> Question:
    """Shows an error of a command in the page."""

    @functools.wraps(ask)
    async def asked(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
        try:
            answer: Any = await ask(client, namespace, given)
        except click.ClickException as error:
            raise Unanswerable(_message(error)) from error
        except KeyError as error:
            raise Unanswerable(f"the question lacks {error.args[0]}") from error
        return answer

    return asked


@_answers
async def _tree(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    return (await tree_answer(client, namespace, str(given["name"]))).data


@_answers
async def _events(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    return (await events_answer(client, namespace, str(given["name"]))).data


@_answers
async def _rollout(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    return (await status_answer(client, namespace, str(given["name"]), _time_of(given))).data


def _history_with(journal: Path | None) -> Question:
    """The picture of the life of a set or of one of its gangs; what `events` says of it, in lanes."""

    @_answers
    async def _history(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
        seen = await set_called(client, namespace, str(given["name"]), read)
        happened, kept = await every(client, Event, namespace), await templates_of(client, seen.sets[0])
        decided = await asyncio.to_thread(decided_about, journal, seen, seen.gangs) if journal is not None else ()
        return history_of(seen, seen.sets[0], happened, _time_of(given), kept, str(given.get("gang") or ""), decided)

    return _history


@_answers
async def _autoscalers(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """The autoscalers of a set, and why each does not change the replicas."""
    seen = await set_called(client, namespace, str(given["name"]), read)
    return autoscaler_lines(await read_autoscalers(client, namespace), seen)


MOST_PODS, LOG_LINES = 8, 100


@_answers
async def _logs(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """The last lines of the pods of a set or of a part of it, for viewers who may read them."""
    players = await chosen(client, namespace, str(given["name"]))
    pods = [player.pod for player in players][:MOST_PODS]
    lines = await latest_lines(client, pods, LOG_LINES)
    return {
        "pods": [{"pod": pod, "lines": printed} for pod, printed in lines.items()],
        "more": len(players) - len(pods),
    }


@_answers
async def _why(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    return (await explain_answer(client, namespace, str(given["name"]))).data


@_answers
async def _queue(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    return (await queue_answer(client, namespace, _time_of(given))).data


@_answers
async def _queues(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """The queues, with their amounts also as people write them: CPU is counted in thousandths, memory in bytes."""
    queues: list[dict[str, Any]] = msgspec.to_builtins((await queues_answer(client)).data)
    for queue in queues:
        queue["shown"] = {
            name: {resource: format_amount(resource, value) for resource, value in queue[name].items()}
            for name in AMOUNTS
        }
    return queues


AMOUNTS = ("guaranteed", "used", "fair_share", "limit", "waiting")
"""What is known of each resource of a queue."""


TIMES = {3600: "1 h", 86400: "24 h", 7 * 86400: "7 d", 30 * 86400: "30 d"}
"""The times, in seconds, that the page of GPU-hours offers if there is a Prometheus."""


def _usage_of(prometheus: Prometheus | None) -> Question:
    """GPU-hours by team and set; or why there are none, which is no fault of the question."""

    @_answers
    async def _usage(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
        last = next((seconds for seconds in TIMES if seconds == given.get("last")), 86400)
        try:
            if prometheus is None:
                used, times = await counted_usage(client, namespace), []
            else:
                used = await past_usage(client, namespace, prometheus, last, f"of the last {TIMES[last]}")
                times = [[seconds, text] for seconds, text in TIMES.items()]
        except (click.ClickException, Forbidden) as error:
            return {"note": error.format_message() if isinstance(error, click.ClickException) else str(error)}
        return msgspec.to_builtins(used) | {"last": last, "times": times}

    return _usage


@_answers
async def _plan(client: Client, namespace: str, given: Mapping[str, Any]) -> Any:
    """Reads a copy of the cluster with the viewer's rights; the plan itself is computed beside the server."""
    where = namespace or "default"
    beside = _objects(str(given.get("manifest") or ""), where)
    scales, drains = _words(given.get("scale")), _words(given.get("drain"))
    if sum(map(bool, (beside.sets, scales, drains))) != 1:
        raise click.UsageError("give a manifest with a PodCliqueSet, or what to scale, or which node to drain")
    referred = await read_known(client, beside.sets, where)
    copy, settings = await copy_cluster(client, None), await settings_of(client)

    def work() -> Any:
        try:
            answer: Answer = run(
                plan_answer(
                    copy, where, beside.sets, scales, drains, settings=settings, beside=beside, referred=referred
                )
            )
        except click.ClickException as error:
            raise Unanswerable(_message(error)) from error
        return answer.data

    return Later(work)


def _objects(text: str, namespace: str) -> Given:
    """The objects of a text, as `kubectl grove plan -f` takes them."""
    try:
        manifests = manifests_in(text, "the manifest")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    given = given_in(manifests, namespace)
    if manifests and not given.sets:
        raise click.UsageError(no_set(manifests))
    check_fields(given.sets)
    return given


def _words(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)] if value else []


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
    where = _KINDS.get(str(given["kind"]))
    if where is None:
        raise click.UsageError(f"the console does not show objects of kind {given['kind']}")
    module, _, name = where.partition(":")
    resource = getattr(importlib.import_module(f"grove.api.{module}"), name).RESOURCE
    obj = dict(await client.get(resource, str(given["name"]), namespace if resource.namespaced else ""))
    (obj.get("metadata") or {}).pop("managedFields", None)
    return {"yaml": yaml.safe_dump(obj, sort_keys=False, allow_unicode=True)}
