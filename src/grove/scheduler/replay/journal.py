"""Records a scheduler's run as a journal, from which `replay` makes every decision again.

The journal is one JSON line for each change of the snapshot and for each decision, in their order. The common part of
pods (their shape) is written once. The journal holds only what placement reads: no images, no environment, no
annotations. A decision has its time and the reason of a refusal, for `history`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from grove.api.meta import Json
from grove.scheduler.cluster.snapshot import Snapshot
from grove.scheduler.evict.preempt import NoVictims, Victims
from grove.scheduler.evict.running import DisruptionBudget, Running
from grove.scheduler.evict.victims import Freed
from grove.scheduler.model.answers import Budget, NoFit, Placement
from grove.scheduler.model.facts import NodeFacts, PodFacts, Shape
from grove.scheduler.model.gang import Branch, Gang, PodGroup

JOURNAL = "journal.jsonl"
FORMAT = 1

encode = msgspec.json.Encoder(order="deterministic").encode


class Journal:
    """Writes lines; made for one run, closed at its end."""

    def __init__(self, directory: Path, clock_s: Callable[[], float] = time.time) -> None:
        self._clock_s = clock_s
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
        self._file.write(encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()

    def pod(self, pod: PodFacts) -> list[Any]:
        """A pod as a row, its shape by number."""
        return [
            pod.uid,
            pod.namespace,
            pod.name,
            self._shape(pod.shape),
            dict(pod.labels),
            pod.node,
            pod.priority,
            pod.terminating,
            pod.may_preempt,
            pod.gang,
            pod.group,
            pod.created_s,
        ]

    def _shape(self, shape: Shape) -> int:
        """A shape's number; the first use of a shape writes it."""
        number = self._shapes.get(shape)
        if number is None:
            number = self._shapes[shape] = len(self._shapes)
            self._write({"op": "shape", "number": number, "shape": msgspec.to_builtins(shape)})
        return number

    # Decisions; between `hold` and `go_on` only they are written, and changes of the cluster follow

    def decided(
        self,
        decision: str,
        gang: Gang,
        budget: Budget,
        closed: tuple[str, ...],
        answer: Placement | NoFit,
        open_uids: Collection[str] = (),
    ) -> None:
        self._write_seams()
        asked = {"gang": self._gang(gang), "steps": budget.steps, "exact": budget.referee is not None, "closed": closed}
        if open_uids:
            asked["open"] = sorted(open_uids)
        if isinstance(answer, NoFit):
            asked["why"] = msgspec.to_builtins(answer.why)
        self._write({"op": "place", **self._when(decision), **asked, "answer": placement_digest(answer)})
        self._file.flush()

    def preempted(
        self,
        decision: str,
        gang: Gang,
        running: Sequence[Running],
        budgets: Sequence[DisruptionBudget],
        budget: Budget,
        closed: tuple[str, ...],
        answer: Victims | NoVictims,
        freed: Sequence[Freed] = (),
        leaving: Sequence[PodFacts] | None = None,
        open_uids: Collection[str] = (),
    ) -> None:
        self._write_seams()
        units = [[u.name, u.priority, [p.uid for p in u.pods], dict(u.minimums), u.preemptible] for u in running]
        allowed = [[b.name, b.allowed, sorted(b.uids)] for b in budgets]
        asked = {
            "gang": self._gang(gang),
            "steps": budget.steps,
            "exact": budget.referee is not None,
            "running": units,
            "budgets": allowed,
            "closed": closed,
            "freed": [[node, sorted(uids), dict(more)] for node, uids, more in freed],
        }
        if leaving is not None:
            asked["leaving"] = [pod.uid for pod in leaving]
        if open_uids:
            asked["open"] = sorted(open_uids)
        self._write({"op": "preempt", **self._when(decision), **asked, "answer": victims_digest(answer)})
        self._file.flush()

    def _when(self, decision: str) -> Json:
        return {"decision": decision, "at": round(self._clock_s(), 3)}

    def hold(self) -> None:
        """A decision on the present snapshot begins; changes come behind it."""
        self._held = []

    def go_on(self) -> None:
        held, self._held = self._held or [], None
        for line in held:
            self._write(line)

    def _write_seams(self) -> None:
        if self.snapshot is None:
            return
        seams = self.snapshot.seams
        state = {
            policy.name: state for policy in seams.policies if (state := policy.remembered(self.snapshot)) is not None
        }
        line = {"op": "seams", "weights": dict(seams.weights), "policies": state}
        if (written := encode(line)) != self._seams:
            self._seams = written
            self._write(line)

    def _gang(self, gang: Gang) -> Json:
        pin = gang.pinned_domain
        return {
            "name": gang.name,
            "root": self._part(gang.root),
            "priority": gang.priority,
            "mayPreempt": gang.may_preempt,
            "topology": gang.topology,
            "pin": [pin.key, pin.node] if pin else None,
            "allowed": [[key, sorted(values)] for key, values in gang.allowed],
            "headroom": [[self._shape(shape), count] for shape, count in gang.headroom],
            "strategy": gang.strategy,
            "former": sorted(gang.former),
            "labels": dict(gang.labels),
            "spreads": msgspec.to_builtins(gang.spreads),
        }

    def _part(self, part: Branch | PodGroup) -> Json:
        common = {"name": part.name, "required": part.required, "preferred": part.preferred}
        if isinstance(part, PodGroup):
            pods = [self.pod(pod) for pod in part.pods]
            standing = [[self._shape(shape), count] for shape, count in part.standing]
            more = {"minimum": part.minimum, "bound": part.bound, "standing": standing, "seats": part.earlier_nodes}
            return {**common, **more, "pods": pods}
        return {**common, "children": [self._part(child) for child in part.children]}


class RecordedSnapshot(Snapshot):
    """A snapshot that writes down every change made to it from outside. Copies of it record nothing."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal
        self._inside = False
        journal.snapshot = self

    @contextmanager
    def _recorded(self, line: Callable[[], Json]) -> Iterator[None]:
        """Writes a change if it comes from outside: the snapshot's own methods call each other."""
        outermost, self._inside = not self._inside, True
        if outermost:
            self._journal.write(line())
        try:
            yield
        finally:
            self._inside = not outermost

    def add_node(self, node: NodeFacts) -> None:
        with self._recorded(lambda: {"op": "node", "node": msgspec.to_builtins(node)}):
            super().add_node(node)

    def remove_node(self, name: str) -> None:
        with self._recorded(lambda: {"op": "node-", "name": name}):
            super().remove_node(name)

    def add_pod(self, pod: PodFacts) -> None:
        with self._recorded(lambda: {"op": "pod", "pod": self._journal.pod(pod)}):
            super().add_pod(pod)

    def remove_pod(self, uid: str) -> None:
        with self._recorded(lambda: {"op": "pod-", "uid": uid}):
            super().remove_pod(uid)

    def forget(self, resources: Iterable[str]) -> None:
        if names := list(resources):
            self._journal.write({"op": "resources-", "names": names})
        super().forget(names)

    def set_topology(self, name: str, keys: tuple[str, ...] | None) -> None:
        self._journal.write({"op": "topology", "name": name, "keys": keys})
        super().set_topology(name, keys)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        self._journal.write({"op": "namespace", "name": name, "labels": None if labels is None else dict(labels)})
        super().set_namespace(name, labels)


def placement_digest(answer: Placement | NoFit) -> Json:
    """The decision, without the snapshot's version: filters and policies taken up at the start count there too."""
    if isinstance(answer, NoFit):
        return {"fits": False, "reason": answer.reason, "proven": answer.proven}
    return {"fits": True, "nodes": answer.nodes, "core": answer.core, "score": answer.score, "domain": answer.domain}


def victims_digest(answer: Victims | NoVictims) -> Json:
    if isinstance(answer, NoVictims):
        return {"found": False, "reason": answer.reason}
    return {
        "found": True,
        "pods": [pod.uid for pod in answer.pods],
        "gangs": answer.gangs,
        "budgetsBroken": answer.budgets_broken,
        "nodes": answer.placement.nodes,
    }
