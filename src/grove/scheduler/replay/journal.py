"""Records a scheduler's run as a journal and replays it: same events, same questions, and the answers are compared.

The journal is one JSON line per change of the snapshot and per decision, in the order they happened; what pods have in
common (their shape) is written once. It holds what placement looks at and nothing else of the objects: no images, no
environment, no annotations. A replay needs no cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from grove.api.meta import Json
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import NoVictims, Victims, preempt
from grove.scheduler.evict.running import DisruptionBudget, Running
from grove.scheduler.evict.vacancies import NO_VACANCIES, Freed, NotHeard, Recalled, Vacancies
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, Pin, PodGroup
from grove.scheduler.model.seams import Policy
from grove.scheduler.policy.quota import FixedUse, Quota
from grove.scheduler.solve.place import place
from grove.scheduler.solve.referee import find_referee
from grove.scheduler.standard import STANDARD

JOURNAL = "journal.jsonl"
FORMAT = 1

_encode = msgspec.json.Encoder(order="deterministic").encode


class BadJournal(ValueError):
    """The file is not a journal we can read; the message says where and why."""


class Journal:
    """Writes lines; made for one run, closed at its end."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = (directory / JOURNAL).open("wb")
        self._shapes: dict[Shape, int] = {}
        self._held: list[Json] | None = None
        self.snapshot: Snapshot | None = None
        """What decisions are made on; its policies are written down where they are not those of the last decision."""
        self._seams = b""
        self._write({"op": "journal", "format": FORMAT})

    def write(self, line: Json) -> None:
        """Writes a change of the snapshot; behind the decision that is being made on the one before it."""
        if self._held is not None:
            self._held.append(line)
        else:
            self._write(line)

    def _write(self, line: Json) -> None:
        self._file.write(_encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()

    def pod(self, pod: PodFacts) -> list[Any]:
        """A pod as a row, its shape by number."""
        return [
            pod.uid, pod.namespace, pod.name, self._shape(pod.shape), dict(pod.labels), pod.node, pod.priority,
            pod.terminating, pod.may_preempt, pod.gang, pod.group, pod.created_s,
        ]  # fmt: skip

    def _shape(self, shape: Shape) -> int:
        """A shape's number; one not met before is written first."""
        number = self._shapes.get(shape)
        if number is None:
            number = self._shapes[shape] = len(self._shapes)
            plain = msgspec.to_builtins(shape)
            plain.pop("_hash")
            self._write({"op": "shape", "number": number, "shape": plain})
        return number

    # Decisions, as `grove.scheduler.loop.decisions.Tape`

    def decided(
        self, decision: str, gang: Gang, budget: Budget, closed: tuple[str, ...], answer: Placement | NoFit
    ) -> None:
        self._write_seams()
        asked = {"gang": self._gang(gang), "steps": budget.steps, "exact": budget.referee is not None, "closed": closed}
        self._write({"op": "place", "decision": decision, **asked, "answer": placement_digest(answer)})
        self._file.flush()

    def preempted(
        self, decision: str, gang: Gang, running: Sequence[Running], budgets: Sequence[DisruptionBudget],
        budget: Budget, closed: tuple[str, ...], answer: Victims | NoVictims, freed: Sequence[Freed] = (),
    ) -> None:  # fmt: skip
        self._write_seams()
        units = [[u.name, u.priority, [p.uid for p in u.pods], dict(u.minimums), u.preemptible] for u in running]
        allowed = [[b.name, b.allowed, sorted(b.uids)] for b in budgets]
        asked = {"gang": self._gang(gang), "steps": budget.steps, "exact": budget.referee is not None,
                 "running": units, "budgets": allowed, "closed": closed,
                 "freed": [[node, sorted(uids), dict(more)] for node, uids, more in freed]}  # fmt: skip
        self._write({"op": "preempt", "decision": decision, **asked, "answer": victims_digest(answer)})
        self._file.flush()

    def hold(self) -> None:
        """A decision is being made on the snapshot as it is now; changes come behind it."""
        self._held = []

    def go_on(self) -> None:
        held, self._held = self._held or [], None
        for line in held:
            self._write(line)

    def _write_seams(self) -> None:
        if self.snapshot is None:
            return
        seams = self.snapshot.seams
        told = {one.name: told for one in seams.policies if (told := one.remembered(self.snapshot)) is not None}
        line = {"op": "seams", "weights": dict(seams.weights), "policies": told}
        if (written := _encode(line)) != self._seams:
            self._seams = written
            self._write(line)

    def _gang(self, gang: Gang) -> Json:
        pin = gang.pinned_domain
        return {
            "name": gang.name, "root": self._part(gang.root), "priority": gang.priority,
            "mayPreempt": gang.may_preempt, "topology": gang.topology, "pin": [pin.key, pin.node] if pin else None,
            "allowed": [[key, sorted(values)] for key, values in gang.allowed],
            "headroom": [[self._shape(shape), count] for shape, count in gang.headroom],
            "strategy": gang.strategy, "former": sorted(gang.former), "labels": dict(gang.labels),
        }  # fmt: skip

    def _part(self, part: Branch | PodGroup) -> Json:
        common = {"name": part.name, "required": part.required, "preferred": part.preferred}
        if isinstance(part, PodGroup):
            pods = [self.pod(pod) for pod in part.pods]
            standing = [[self._shape(shape), count] for shape, count in part.standing]
            more = {"minimum": part.minimum, "bound": part.bound, "standing": standing, "seats": part.seats}
            return {**common, **more, "pods": pods}
        return {**common, "children": [self._part(child) for child in part.children]}


class RecordedSnapshot(Snapshot):
    """A snapshot that writes down every change made to it from outside. Copies of it record nothing."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        self._inside = False
        journal.snapshot = self

    def add_node(self, node: NodeFacts) -> None:
        with _Outermost(self) as outermost:
            if outermost:
                self._journal.write({"op": "node", "node": msgspec.to_builtins(node)})
            super().add_node(node)

    def remove_node(self, name: str) -> None:
        with _Outermost(self) as outermost:
            if outermost:
                self._journal.write({"op": "node-", "name": name})
            super().remove_node(name)

    def add_pod(self, pod: PodFacts) -> None:
        with _Outermost(self) as outermost:
            if outermost:
                row = self._journal.pod(pod)
                self._journal.write({"op": "pod", "pod": row})
            super().add_pod(pod)

    def remove_pod(self, uid: str) -> None:
        with _Outermost(self) as outermost:
            if outermost:
                self._journal.write({"op": "pod-", "uid": uid})
            super().remove_pod(uid)

    def set_topology(self, name: str, keys: tuple[str, ...] | None) -> None:
        self._journal.write({"op": "topology", "name": name, "keys": keys})
        super().set_topology(name, keys)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        self._journal.write({"op": "namespace", "name": name, "labels": None if labels is None else dict(labels)})
        super().set_namespace(name, labels)


class _Outermost:
    """Whether a change comes from outside: the snapshot's own methods call each other."""

    def __init__(self, snapshot: RecordedSnapshot) -> None:
        self._snapshot = snapshot
        self._outermost = not snapshot._inside

    def __enter__(self) -> bool:
        self._snapshot._inside = True
        return self._outermost

    def __exit__(self, *exc: object) -> None:
        self._snapshot._inside = not self._outermost


@dataclass(frozen=True, slots=True)
class Replayed:
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
        case "topology":
            snapshot.set_topology(line["name"], None if line["keys"] is None else tuple(line["keys"]))
        case "namespace":
            snapshot.set_namespace(line["name"], line["labels"])
        case "seams":
            policies = [one for name, told in line["policies"].items() for one in RECALLED[name](told)]
            seams = STANDARD.joined(policies=policies, weights=line["weights"])
            snapshot.use(replace(snapshot.seams, policies=seams.policies, weights=seams.weights))
        case "place":
            gang = _gang(line["gang"], shapes)
            answer = place(snapshot, gang, _budget(line), closed=line["closed"])
            yield Replayed(line["decision"], "place", gang.name, _recorded(line), _plain(placement_digest(answer)))
        case "preempt":
            gang = _gang(line["gang"], shapes)
            try:
                found = preempt(
                    snapshot, gang, _running(line["running"], snapshot), _budgets(line["budgets"]), _budget(line),
                    closed=line.get("closed", ()), vacancies=_vacancies(line.get("freed", ())),
                )  # fmt: skip
                now = _plain(victims_digest(found))
            except NotHeard as error:
                now = {"unknown": str(error)}
            yield Replayed(line["decision"], "preempt", gang.name, _recorded(line), now)
        case other:
            raise BadJournal(f"unknown line {other!r}")


def _quota(told: Json) -> list[Policy]:
    quota = Quota.recalled(told)
    return [quota, FixedUse(quota)]


RECALLED: dict[str, Callable[[Json], list[Policy]]] = {Quota.name: _quota}
"""How policies are made again from what they remembered."""


def _budget(line: Json) -> Budget:
    return Budget(line["steps"], find_referee() if line.get("exact") else None)


def placement_digest(answer: Placement | NoFit) -> Json:
    """The decision, without the snapshot's version: filters and policies taken up at the start count there too."""
    if isinstance(answer, NoFit):
        return {"fits": False, "reason": answer.reason, "proven": answer.proven}
    return {"fits": True, "nodes": answer.nodes, "core": answer.core, "score": answer.score, "domain": answer.domain}


def victims_digest(answer: Victims | NoVictims) -> Json:
    if isinstance(answer, NoVictims):
        return {"found": False, "reason": answer.reason}
    return {"found": True, "pods": [pod.uid for pod in answer.pods], "gangs": answer.gangs,
            "budgetsBroken": answer.budgets_broken, "nodes": answer.placement.nodes}  # fmt: skip


def _recorded(line: Json) -> Json:
    """What was answered; journals of earlier versions also have words and a version, which are not the decision."""
    return {name: value for name, value in line["answer"].items() if name not in ("message", "version")}


def _plain(digest: Json) -> Json:
    """A digest as it reads after a turn through JSON, so that the two compare."""
    plain: Json = msgspec.json.decode(_encode(digest))
    return plain


def _pod(row: list[Any], shapes: list[Shape]) -> PodFacts:
    uid, namespace, name, shape, *rest = row
    return PodFacts(uid, namespace, name, shapes[shape], *rest)


def _gang(json: Json, shapes: list[Shape]) -> Gang:
    root = _part(json["root"], shapes)
    assert isinstance(root, Branch)
    return Gang(
        json["name"], root, json["priority"], json["mayPreempt"], json["topology"],
        Pin(*json["pin"]) if json["pin"] else None,
        tuple((key, frozenset(values)) for key, values in json["allowed"]),
        tuple((shapes[number], count) for number, count in json["headroom"]),
        json["strategy"], frozenset(json["former"]), json.get("labels", {}),
    )  # fmt: skip


def _part(json: Json, shapes: list[Shape]) -> Branch | PodGroup:
    if "children" in json:
        children = tuple(_part(child, shapes) for child in json["children"])
        return Branch(json["name"], children, json["required"], json["preferred"])
    pods = tuple(_pod(row, shapes) for row in json["pods"])
    standing = tuple((shapes[number], count) for number, count in json.get("standing", ()))
    return PodGroup(
        json["name"], json["minimum"], pods, tuple(json["bound"]), json["required"], json["preferred"], standing,
        tuple(json.get("seats", ())),
    )  # fmt: skip


def _running(rows: list[list[Any]], snapshot: Snapshot) -> list[Running]:
    units = []
    for name, priority, uids, minimums, preemptible in rows:
        pods = tuple(pod for uid in uids if (pod := snapshot.find_pod(uid)) is not None)
        units.append(Running(name, priority, pods, minimums, preemptible))
    return units


def _vacancies(rows: Sequence[list[Any]]) -> Vacancies:
    """What sources said would come free."""
    return Vacancies([Recalled((node, frozenset(uids), more) for node, uids, more in rows)]) if rows else NO_VACANCIES


def _budgets(rows: list[list[Any]]) -> list[DisruptionBudget]:
    return [DisruptionBudget(name, allowed, frozenset(uids)) for name, allowed, uids in rows]
