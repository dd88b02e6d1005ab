"""All sets at a glance, worst first: one line each, from their judgements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from grove.api.core import Pod
from grove.api.meta import Json, Key
from grove.api.podcliqueset import PodCliqueSet
from grove.api.words import many
from grove.diagnosis.processes import Processes
from grove.diagnosis.seen import Seen
from grove.diagnosis.states import STYLES, WORST_FIRST
from grove.diagnosis.verdict import Judgement
from grove.diagnosis.words import age
from grove.scheduler.model.reading import pod_requests
from grove.show.columns import table
from grove.show.layout import accelerator


@dataclass(frozen=True, slots=True)
class Row:
    """One set. `scheduled` pods have a node; `asked` and `held` are the accelerators of all its pods, and of those.

    `why` begins with an operator or a scheduler that does not run. `cause` leaves that out.
    """

    namespace: str
    name: str
    state: str
    why: str
    replicas: int
    available: int
    updated: int
    pods: int
    ready: int
    asked: int
    held: int
    restarts: int
    gang_restarts: int
    autoscaled: tuple[str, ...]
    created: datetime | None
    resource: str
    scheduled: int = 0
    cause: str = ""


def rows_of(sets: Sequence[Judgement], seen: Seen, order: str = "state", resource: str = "") -> list[Row]:
    """In one of the orders of `SORTS`; by itself worst first, then by name. `resource` is what is counted, if known."""
    resource = resource or accelerator(seen.nodes)
    by_key = {pcs.metadata.key: pcs for pcs in seen.sets}
    rows = []
    for judgement in sets:
        pcs = by_key[Key(judgement.namespace, judgement.name)]
        assert judgement.tree is not None
        asked, held, scheduled, restarts = _amounts(seen, pcs, resource)
        rows.append(
            Row(
                judgement.namespace,
                judgement.name,
                judgement.state,
                judgement.brief,
                pcs.spec.replicas,
                pcs.status.available_replicas,
                pcs.status.updated_replicas,
                judgement.tree.count.wanted,
                judgement.tree.count.ready,
                asked,
                held,
                restarts,
                pcs.status.gang_restarts,
                tuple(_autoscaled(seen, pcs)),
                pcs.metadata.creation_timestamp,
                resource,
                scheduled,
                judgement.cause,
            )
        )
    return sorted(rows, key=SORTS[order or "state"])  # type: ignore[arg-type]


def _amounts(seen: Seen, pcs: PodCliqueSet, resource: str) -> tuple[int, int, int, int]:
    asked = held = scheduled = restarts = 0
    for clique in seen.of_set(seen.cliques, pcs):
        each = _request(msgspec.json.encode(clique.spec.pod_spec), resource)
        asked += each * clique.spec.replicas
        for pod in seen.pods_of_clique.get(clique.metadata.key, ()):
            if pod.is_bound and not pod.is_finished:
                held += each
                scheduled += 1
            restarts += sum(status.restart_count for status in pod.status.container_statuses)
    return asked, held, scheduled, restarts


@lru_cache(maxsize=512)
def _request(pod_spec: bytes, resource: str) -> int:
    spec: Json = msgspec.json.decode(pod_spec)
    return dict(pod_requests(msgspec.convert({"metadata": {}, "spec": spec}, Pod))).get(resource, 0)


def _autoscaled(seen: Seen, pcs: PodCliqueSet) -> list[str]:
    """The parts that an autoscaler scales, with their bounds, as `prefill 1-8`."""
    template = pcs.spec.template
    bounds = [(group.name, group.scale_config, group.replicas) for group in template.pod_clique_scaling_groups]
    bounds += [
        (clique.name, clique.spec.auto_scaling_config, clique.spec.replicas) for clique in template.standalone_cliques
    ]
    return [
        f"{name} {config.min_replicas if config.min_replicas is not None else least}-{config.max_replicas}"
        for name, config, least in bounds
        if config is not None
    ]


SORTS: dict[str, Callable[[Row], object]] = {
    "state": lambda row: (WORST_FIRST.index(row.state), row.namespace, row.name),
    "name": lambda row: (row.name, row.namespace),
    "age": lambda row: (str(row.created or ""), row.name),
    "gpus": lambda row: (-row.asked, row.name),
    "pods": lambda row: (-row.pods, row.name),
    "restarts": lambda row: (-row.restarts - row.gang_restarts, row.name),
}


def overview(
    rows: Sequence[Row], processes: Processes, width: int, now: datetime, *, everywhere: bool, wide: bool = False
) -> RenderableType:
    """The table; the line that the operator or the scheduler does not run stands above it, once."""
    first = [Text(process.sentence, style="bold red") for process in processes.down]
    if not rows:
        return Group(*first, Text("no PodCliqueSets"))
    titles = ["NAMESPACE", "NAME", "STATE", "AVAILABLE", "PODS", _short(rows[0].resource), "AGE"]
    if wide:
        titles += ["UPDATED", "RESTARTS", "AUTOSCALED"]
    titles.append("WHY")
    cells: list[list[Text | str]] = []
    for row in rows:
        line: list[Text | str] = [
            row.namespace,
            row.name,
            Text(row.state, style=STYLES[row.state]),
            f"{row.available}/{row.replicas}",
            f"{row.ready}/{row.pods}",
            f"{row.held}/{row.asked}",
            age(row.created, now),
        ]
        if wide:
            restarts = f"{row.restarts}" + (f" + {many(row.gang_restarts, 'gang')}" if row.gang_restarts else "")
            line += [f"{row.updated}/{row.replicas}", restarts, ", ".join(row.autoscaled)]
        cells.append([*line, row.cause])
    may_go = ["AGE", titles[5], "AVAILABLE"] if everywhere else ["NAMESPACE", "AGE", titles[5]]
    return Group(*first, table(titles, cells, width, may_go=[] if wide else may_go))


def _short(resource: str) -> str:
    """`nvidia.com/gpu` as a title."""
    return f"{resource.rpartition('/')[2].upper()}S"
