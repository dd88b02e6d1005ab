"""Plays a journal again without a cluster: same events, same questions, and the answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from grove.api.meta import Json
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import preempt
from grove.scheduler.evict.running import DisruptionBudget, Running
from grove.scheduler.evict.victims import NO_VACANCIES, NotRecorded, RecordedVacancy, Vacancies
from grove.scheduler.model.answers import Budget
from grove.scheduler.model.facts import NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup, UnitSpread
from grove.scheduler.model.seams import Policy
from grove.scheduler.policy.quota_policy import FixedUse, Quota
from grove.scheduler.replay.journal import FORMAT, JOURNAL, encode, placement_digest, victims_digest
from grove.scheduler.solve.place import place
from grove.scheduler.solve.referee import find_referee
from grove.scheduler.standard import STANDARD


class BadJournal(ValueError):
    """The file is not a journal we can read; the message says where and why."""


class Replayed(msgspec.Struct, frozen=True):
    """One decision made again."""

    decision: str
    kind: str
    gang: str
    recorded: Json
    now: Json

    @property
    def is_same(self) -> bool:
        return self.recorded == self.now


def replay(directory: Path) -> Iterator[Replayed]:
    """Every decision of a journal, made again on the same snapshot; raises BadJournal."""
    path = directory / JOURNAL if directory.is_dir() else directory
    snapshot = Snapshot()
    shapes: list[Shape] = []
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                try:
                    yield from _apply(msgspec.json.decode(raw), snapshot, shapes)
                except (msgspec.MsgspecError, KeyError, IndexError, TypeError, AttributeError) as err:
                    raise BadJournal(f"{path}:{number}: not a line of a journal: {err}") from err
    except FileNotFoundError:
        raise BadJournal(f"there is no journal at {path}") from None


def _apply(line: Json, snapshot: Snapshot, shapes: list[Shape]) -> Iterator[Replayed]:
    match line["op"]:
        case "journal":
            if line["format"] != FORMAT:
                raise BadJournal(f"journal format {line['format']} is not {FORMAT}")
        case "shape":
            shapes.append(msgspec.convert(line["shape"], Shape))
        case "node":
            snapshot.add_node(msgspec.convert(line["node"], NodeFacts))
        case "node-":
            snapshot.remove_node(line["name"])
        case "pod":
            snapshot.add_pod(_pod(line["pod"], shapes))
        case "pod-":
            snapshot.remove_pod(line["uid"])
        case "resources-":
            snapshot.forget(line["names"])
        case "topology":
            snapshot.set_topology(line["name"], None if line["keys"] is None else tuple(line["keys"]))
        case "namespace":
            snapshot.set_namespace(line["name"], line["labels"])
        case "seams":
            policies = [policy for name, state in line["policies"].items() for policy in RECALLED[name](state)]
            seams = STANDARD.joined(policies=policies, weights=line["weights"])
            snapshot.use(replace(snapshot.seams, policies=seams.policies, weights=seams.weights))
        case "place":
            gang = _gang(line["gang"], shapes)
            answer = place(snapshot.without(line.get("open", ())), gang, _budget(line), closed=line["closed"])
            yield Replayed(line["decision"], "place", gang.name, _recorded(line), _plain(placement_digest(answer)))
        case "preempt":
            gang = _gang(line["gang"], shapes)
            try:
                victims = preempt(
                    snapshot.without(line.get("open", ())),
                    gang,
                    _running(line["running"], snapshot),
                    _budgets(line["budgets"]),
                    _budget(line),
                    closed=line.get("closed", ()),
                    vacancies=_vacancies(line.get("freed", ())),
                    leaving=_leaving(line.get("leaving"), snapshot),
                )
                now = _plain(victims_digest(victims))
            except NotRecorded as error:
                now = {"unknown": str(error)}
            yield Replayed(line["decision"], "preempt", gang.name, _recorded(line), now)
        case other:
            raise BadJournal(f"unknown line {other!r}")


def _leaving(uids: list[str] | None, snapshot: Snapshot) -> list[PodFacts] | None:
    if uids is None:
        return None
    pods = (snapshot.find_pod(uid) for uid in uids)
    return [pod for pod in pods if pod is not None]


def _quota(state: Json) -> list[Policy]:
    quota = Quota.recalled(state)
    return [quota, FixedUse(quota)]


RECALLED: dict[str, Callable[[Json], list[Policy]]] = {Quota.name: _quota}
"""How policies come back from their records."""


def _budget(line: Json) -> Budget:
    return Budget(line["steps"], find_referee() if line.get("exact") else None)


def _recorded(line: Json) -> Json:
    """The recorded decision. Journals of earlier versions also have a message and a version, which do not count."""
    return {name: value for name, value in line["answer"].items() if name not in ("message", "version")}


def _plain(digest: Json) -> Json:
    """A digest as it reads after a turn through JSON, so that the two compare."""
    plain: Json = msgspec.json.decode(encode(digest))
    return plain


def _pod(row: list[Any], shapes: list[Shape]) -> PodFacts:
    uid, namespace, name, shape, *rest = row
    return PodFacts(uid, namespace, name, shapes[shape], *rest)


def _gang(json: Json, shapes: list[Shape]) -> Gang:
    root = _part(json["root"], shapes)
    assert isinstance(root, Branch)
    return Gang(
        json["name"],
        root,
        json["priority"],
        json["mayPreempt"],
        json["topology"],
        Pin(*json["pin"]) if json["pin"] else None,
        tuple((key, frozenset(values)) for key, values in json["allowed"]),
        tuple((shapes[number], count) for number, count in json["headroom"]),
        json["strategy"],
        frozenset(json["former"]),
        json.get("labels", {}),
        msgspec.convert(json.get("spreads", ()), tuple[UnitSpread, ...]),
    )


def _part(json: Json, shapes: list[Shape]) -> Branch | PodGroup:
    if "children" in json:
        children = tuple(_part(child, shapes) for child in json["children"])
        return Branch(json["name"], children, json["required"], json["preferred"])
    pods = tuple(_pod(row, shapes) for row in json["pods"])
    standing = tuple((shapes[number], count) for number, count in json.get("standing", ()))
    return PodGroup(
        json["name"],
        json["minimum"],
        pods,
        tuple(json["bound"]),
        json["required"],
        json["preferred"],
        standing,
        tuple(json.get("seats", ())),
    )


def _running(rows: list[list[Any]], snapshot: Snapshot) -> list[Running]:
    units = []
    for name, priority, uids, minimums, preemptible in rows:
        pods = tuple(pod for uid in uids if (pod := snapshot.find_pod(uid)) is not None)
        units.append(Running(name, priority, pods, minimums, preemptible))
    return units


def _vacancies(rows: Sequence[list[Any]]) -> Vacancies:
    """The recorded answers of sources about amounts that become free."""
    return (
        Vacancies([RecordedVacancy((node, frozenset(uids), more) for node, uids, more in rows)])
        if rows
        else NO_VACANCIES
    )


def _budgets(rows: list[list[Any]]) -> list[DisruptionBudget]:
    return [DisruptionBudget(name, allowed, frozenset(uids)) for name, allowed, uids in rows]
