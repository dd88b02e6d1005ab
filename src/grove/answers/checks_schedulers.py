"""What `doctor` asks about other schedulers: whether what Grove's sets need of them is switched on there."""

from __future__ import annotations

from typing import Any

from grove.answers.findings import OK, SKIP, WARN, Finding
from grove.answers.settings import FILE
from grove.api.core import ConfigMap
from grove.api.labels import DEFAULT_SCHEDULER, KAI_SCHEDULER, NAME, OPERATOR, PART_OF, SCHEDULER_NAME
from grove.api.meta import Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends.base import Question
from grove.backends.kai import QUEUE
from grove.backends.needs import Need, Use, needs_of, questions_for
from grove.config import ConfigError, OperatorConfiguration, load_configuration
from grove.diagnosis.seen import every
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound


async def schedulers(client: Client) -> list[Finding]:
    """Every scheduler but ours that a profile of the operator names or that a set uses."""
    sets, gangs = await every(client, PodCliqueSet), await every(client, PodGang)
    profiles = await _profiles(client)
    used = {gang.metadata.labels.get(_scheduler_label(), "") for gang in gangs}
    findings: list[Finding] = []
    for name in sorted((profiles.keys() | used) - {""}):
        use = _use(name, profiles.get(name, {}), sets, gangs)
        questions = questions_for(name, use)
        if not questions or (name not in used and _is_plain(name, profiles.get(name, {}))):
            continue
        answers: dict[str, Any] = {}
        for question in questions:
            if not question.only_if or answers.get(question.only_if):
                await _ask(client, question, answers)
        findings += [_finding(name, need) for need in needs_of(name, use, answers)]
    return findings


def _scheduler_label() -> str:
    return SCHEDULER_NAME


def _is_plain(name: str, options: dict[str, Any]) -> bool:
    """True for a default profile without options: no set uses gangs of kube-scheduler then."""
    return name == DEFAULT_SCHEDULER and not options.get("gangScheduling") and not options.get("gang")


def _use(name: str, options: dict[str, Any], sets: list[PodCliqueSet], gangs: list[PodGang]) -> Use:
    mine = [gang for gang in gangs if gang.metadata.labels.get(_scheduler_label()) == name]
    owners = {Key(gang.metadata.namespace, gang.metadata.labels.get(PART_OF, "")) for gang in mine}
    named = {queue for pcs in sets if pcs.metadata.key in owners for queue in QUEUE.queues(pcs)}
    queues = frozenset(named) if name == KAI_SCHEDULER else frozenset[str]()
    return Use(options, queues, any(gang.requires_domain for gang in mine))


async def _profiles(client: Client) -> dict[str, dict[str, Any]]:
    """The options of each profile, from the operator's newest ConfigMap; none if it cannot be read."""
    config = await _operator_configuration(client)
    return (
        {profile.name: dict(profile.config or {}) for profile in config.scheduler.profiles}
        if config is not None
        else {}
    )


async def _operator_configuration(client: Client) -> OperatorConfiguration | None:
    try:
        items = [
            item for item in (await client.list(ConfigMap, labels=f"{NAME}={OPERATOR}")).items if FILE in item.data
        ]
    except Forbidden:
        return None
    newest = max(
        items,
        key=lambda config_map: (str(config_map.metadata.creation_timestamp or ""), config_map.metadata.name),
        default=None,
    )
    try:
        return load_configuration(newest.data[FILE]) if newest is not None else None
    except ConfigError:
        return None


async def _ask(client: Client, question: Question, answers: dict[str, Any]) -> None:
    """Adds the answer; nothing where a right is missing."""
    try:
        if question.ask == "served":
            answers[question.name] = await client.serves(question.resource)
        elif question.ask == "list":
            answers[question.name] = list((await client.list(question.resource, question.namespace)).items)
        else:
            answers[question.name] = await client.get(question.resource, question.object_name, question.namespace)
    except NotFound:
        answers[question.name] = None
    except Forbidden:
        return


def _finding(scheduler: str, need: Need) -> Finding:
    if need.met:
        return Finding(scheduler, OK, need.what)
    if need.met is None:
        return Finding(scheduler, SKIP, f"{need.what}: cannot be read. Without it {need.without}", need.lines)
    return Finding(scheduler, WARN, f"{need.what} is missing: {need.without}", need.lines)
