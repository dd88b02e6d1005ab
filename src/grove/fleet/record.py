"""A fleet file from a live cluster: what is there, and what happens to it for some hours.

Nodes become node types by what they offer. Sets that run from beginning to end become serving sets with a steady load.
Sets that arrive or end meanwhile become rows of a trace. Nodes that stop being Ready give the rate of failures. Only
reads, through watches.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grove.api.core import Node, PriorityClass
from grove.api.koordinator import ElasticQuota
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.api.quantity import exact
from grove.api.topology import ClusterTopologyBinding, TopologyConstraint
from grove.fleet.checks import MOST_PRIORITY
from grove.fleet.manifests import GPU, QUEUE
from grove.fleet.trace import Job, write_trace
from grove.kube.cache import Cache
from grove.kube.client import Client

NO_TEAM = "others"
SHAPE = ("zone", "block", "rack")
PACKS = (*SHAPE, "host")
YEAR_S = 365 * 86400.0


@dataclass(slots=True)
class SetRecord:
    """One set: when it was first and last seen, and what it asks for."""

    pcs: PodCliqueSet
    since_s: float
    until_s: float | None = None
    was_there: bool = False


class Recorder:
    """Follows a cluster through a cache. Times are seconds since the beginning."""

    def __init__(self, cache: Cache, now: asyncio.AbstractEventLoop) -> None:
        self._cache, self._loop = cache, now
        self._began_s = now.time()
        self.is_synced = False
        self.sets: dict[str, SetRecord] = {}
        self.failures = 0
        self.repairs_s: list[float] = []
        self._down: dict[str, float] = {}
        cache.on_event(PodCliqueSet, self._see_set)
        cache.on_event(Node, self._see_node)

    @property
    def time_s(self) -> float:
        return self._loop.time() - self._began_s

    def _see_set(self, old: PodCliqueSet | None, new: PodCliqueSet | None) -> None:
        if new is None:
            assert old is not None
            if (gone := self.sets.get(old.metadata.uid)) is not None:
                gone.until_s = self.time_s
            return
        record = self.sets.setdefault(new.metadata.uid, SetRecord(new, self.time_s, was_there=not self.is_synced))
        record.pcs = new
        if new.metadata.is_deleting and record.until_s is None:
            record.until_s = self.time_s

    def _see_node(self, old: Node | None, new: Node | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]
        is_up = new is not None and new.is_ready
        if not is_up and name not in self._down and self.is_synced:
            self.failures += 1
            self._down[name] = self.time_s
        elif is_up and name in self._down:
            self.repairs_s.append(self.time_s - self._down.pop(name))


async def record_fleet(client: Client, namespace: str, lasts_s: float, trace: Path) -> Json:
    """Watches for `lasts_s` seconds, writes the trace beside the fleet file and returns the fleet file's tree."""
    cache = Cache(client)
    recorder = Recorder(cache, asyncio.get_running_loop())
    cache.add(ClusterTopologyBinding)
    cache.add(PriorityClass)
    has_quotas = await client.serves(ElasticQuota)
    if has_quotas:
        cache.add(ElasticQuota)
    async with cache:
        await cache.wait_synced()
        recorder.is_synced = True
        try:
            await asyncio.sleep(lasts_s)
        except asyncio.CancelledError:
            pass  # interrupted: what was seen until now is written
        seconds = max(1.0, recorder.time_s)
        records = [pcs for pcs in recorder.sets.values() if not namespace or pcs.pcs.metadata.namespace == namespace]
        values = {priority_class.metadata.name: priority_class.value for priority_class in cache.list(PriorityClass)}
        traces = write_traces(trace, [record for record in records if _is_batch(record)], values, seconds)
        quotas = list(cache.list(ElasticQuota)) if has_quotas else []
        bindings = list(cache.list(ClusterTopologyBinding))
        serving = [record for record in records if not _is_batch(record)]
        return {
            "title": f"Recorded for {seconds / 3600:.1f} h",
            "lasts": f"{math.ceil(seconds)}s",
            "cluster": _cluster(list(cache.list(Node)), bindings, recorder, seconds),
            "teams": _teams(records, quotas, values),
            "work": {
                "serving": serving_rows(serving),
                "traces": traces,
            },
            "settings": {"operator": {"topologyAwareScheduling": {"enabled": bool(bindings)}}},
        }


def write_traces(path: Path, records: list[SetRecord], priorities: dict[str, int], seconds: float) -> list[Json]:
    """Writes a trace for each domain that gangs require, beside `path`, and returns their rows of the fleet file."""
    by_pack: dict[str, list[Job]] = defaultdict(list)
    for record in records:
        by_pack[_set_pack(record.pcs)].append(_job(record, priorities, seconds))
    rows: list[Json] = []
    for pack, jobs in sorted(by_pack.items()):
        file = path.with_stem(f"{path.stem}-{pack}") if pack else path
        write_trace(file, sorted(jobs, key=lambda job: job.arrival_s))
        rows.append({"file": file.name} | ({"pack": pack} if pack else {}))
    return rows


def serving_rows(records: list[SetRecord]) -> list[Json]:
    """Sets as serving sets. Sets of one name, from several namespaces, get a number."""
    rows, seen = [_serving(record) for record in records], Counter[str]()
    for row in rows:
        name = row["name"]
        seen[name] += 1
        if seen[name] > 1:
            row["name"] = f"{name}-{seen[name]}"
    return rows


def _set_pack(pcs: PodCliqueSet) -> str:
    """The domain that all pods of a set require; of a set with one clique also that of the clique."""
    cliques = pcs.spec.template.cliques
    alone = cliques[0].topology_constraint if len(cliques) == 1 else None
    return _pack(pcs.spec.template.topology_constraint) or _pack(alone)


def _pack(constraint: TopologyConstraint | None) -> str:
    """The domain that a constraint requires, if a fleet file has it."""
    required = constraint.required if constraint is not None else ""
    return required if required in PACKS else ""


def _is_batch(record: SetRecord) -> bool:
    return not record.was_there or record.until_s is not None


def _team(pcs: PodCliqueSet) -> str:
    return _team_name(pcs.metadata.labels.get(QUEUE, NO_TEAM))


def _team_name(queue: str) -> str:
    """A queue may have dots in its name, a team has none."""
    return queue.lower().replace(".", "-").replace("_", "-")


def _priority(values: dict[str, int], pcs: PodCliqueSet) -> int | None:
    """System classes are above what a fleet file may have."""
    value = values.get(pcs.spec.template.priority_class_name)
    return None if value is None else min(value, MOST_PRIORITY)


def _job(record: SetRecord, priorities: dict[str, int], seconds: float) -> Job:
    sizes = _sizes(record.pcs)
    until_s = record.until_s if record.until_s is not None else seconds
    return Job(
        arrival_s=round(record.since_s, 1),
        pods=max(1, sum(sizes.values())),
        gpus=max(sizes, default=0),
        lasts_s=max(1.0, round(until_s - record.since_s, 1)),
        team=_team(record.pcs),
        priority=_priority(priorities, record.pcs),
    )


def _sizes(pcs: PodCliqueSet) -> Counter[int]:
    """How many pods of a set ask for how many GPUs."""
    groups = {
        name: group.replicas for group in pcs.spec.template.pod_clique_scaling_groups for name in group.clique_names
    }
    counter: Counter[int] = Counter()
    for clique in pcs.spec.template.cliques:
        instances = groups.get(clique.name, 1) or 0
        counter[_gpus(clique.spec.pod_spec)] += pcs.spec.replicas * clique.spec.replicas * instances
    return counter


def _gpus(pod_spec: Json) -> int:
    amounts = ((box.get("resources") or {}).get("limits") or {} for box in pod_spec.get("containers") or ())
    return int(sum(exact(str(amount.get(GPU, 0))) for amount in amounts))


def _serving(record: SetRecord) -> Json:
    """A set that ran all the time: its groups as parts, each with as much load as it can serve by half."""
    pcs = record.pcs
    cliques = {clique.name: clique for clique in pcs.spec.template.cliques}
    parts: list[Json] = []
    for group in pcs.spec.template.pod_clique_scaling_groups:
        mine = [cliques[name] for name in group.clique_names if name in cliques]
        scale = group.scale_config
        parts.append(
            {
                "name": group.name,
                "pods": max(1, sum(clique.spec.replicas for clique in mine)),
                "gpus": max((_gpus(clique.spec.pod_spec) for clique in mine), default=0),
                "replicas": max(1, group.replicas or 1),
                "minAvailable": max(1, min(group.min_available or 1, group.replicas or 1)),
                "maxReplicas": scale.max_replicas if scale is not None else 0,
                "requestsPerSecond": 1.0,
            }
            | ({"pack": pack} if (pack := _pack(group.topology_constraint)) else {})
        )
    alone = [clique for clique in cliques.values() if not any(clique.name in g.clique_names for g in _groups(pcs))]
    parts += [
        {
            "name": clique.name,
            "pods": max(1, clique.spec.replicas),
            "gpus": _gpus(clique.spec.pod_spec),
            "requestsPerSecond": 1.0,
        }
        | ({"pack": _pack(clique.topology_constraint)} if _pack(clique.topology_constraint) else {})
        for clique in alone
    ]
    least = min([config.replicas or 1 for config in _groups(pcs)], default=1)
    load = {"peak": 0.5 * least * pcs.spec.replicas, "low": 0.5 * least * pcs.spec.replicas}
    row = {"name": pcs.metadata.name, "team": _team(pcs), "replicas": max(1, pcs.spec.replicas), "load": load}
    pack = _pack(pcs.spec.template.topology_constraint)
    return {**row, **({"pack": pack} if pack else {}), "parts": parts}


def _groups(pcs: PodCliqueSet) -> Sequence[ScalingGroupConfig]:
    return pcs.spec.template.pod_clique_scaling_groups


def _teams(records: list[SetRecord], quotas: list[ElasticQuota], values: dict[str, int]) -> list[Json]:
    priorities: dict[str, int] = defaultdict(int)
    for record in records:
        priority = _priority(values, record.pcs) or 0
        priorities[_team(record.pcs)] = max(priorities[_team(record.pcs)], priority)
    limits = {_team_name(elastic_quota.metadata.name): elastic_quota for elastic_quota in quotas}
    rows = []
    for name in sorted(priorities.keys() | limits.keys()):
        row: Json = {"name": name, "priority": priorities[name]}
        if (quota := limits.get(name)) is not None:
            least, most = (quota.spec.min or {}).get(GPU), (quota.spec.max or {}).get(GPU)
            row |= {"quota": int(exact(str(least)))} if least is not None else {"quota": 0}
            row |= {"limit": int(exact(str(most)))} if most is not None else {}
        rows.append(row)
    return rows or [{"name": NO_TEAM}]


def _cluster(nodes: list[Node], bindings: list[ClusterTopologyBinding], recorder: Recorder, seconds: float) -> Json:
    keys = {level.domain: level.key for binding in bindings[:1] for level in binding.spec.levels}
    by_type: dict[tuple[int, str, str], list[Node]] = defaultdict(list)
    for node in nodes:
        offer = node.status.allocatable
        by_type[int(exact(str(offer.get(GPU, 0)))), str(offer.get("cpu", "1")), str(offer.get("memory", "1Gi"))].append(
            node
        )
    rows = [_node_type(number, offer, alike, keys) for number, (offer, alike) in enumerate(sorted(by_type.items()))]
    cluster: Json = {"nodes": rows}
    if recorder.failures and nodes:
        every_s = min(YEAR_S, seconds * len(nodes) / recorder.failures)
        repairs = recorder.repairs_s or [4 * 3600.0]
        mean_s = max(1, round(sum(repairs) / len(repairs)))
        cluster["failures"] = {"nodes": {"every": f"{round(every_s)}s", "repair": f"exponential({mean_s}s)"}}
    return cluster


def _node_type(number: int, offer: tuple[int, str, str], alike: list[Node], keys: dict[str, str]) -> Json:
    """Domains as even as possible: the number of nodes is kept, racks may differ by some nodes."""
    counts = {
        level: len({node.metadata.labels.get(keys[level], "") for node in alike}) if level in keys else 1
        for level in SHAPE
    }
    zones = max(1, counts["zone"])
    blocks = max(1, round(counts["block"] / zones))
    racks = max(1, round(counts["rack"] / (zones * blocks)))
    per_rack = max(1, round(len(alike) / (zones * blocks * racks)))
    gpus, cpu, memory = offer
    shape = {"zones": zones, "blocks": blocks, "racks": racks, "nodes": per_rack}
    return {"name": f"type-{number}", **shape, "gpus": gpus, "cpu": cpu, "memory": memory}
