"""A fleet file from a live cluster: what is there, and what happens to it for some hours.

Nodes become node types by what they offer. Sets that run from beginning to end become serving sets with a steady load.
Sets that arrive or end meanwhile become rows of a trace. Nodes that stop being Ready give the rate of failures. Only
reads, through watches.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grove.api.core import Node, PriorityClass
from grove.api.koordinator import ElasticQuota
from grove.api.meta import Json
from grove.api.names import MAX_COMBINED_LENGTH
from grove.api.podclique import AutoScalingConfig
from grove.api.podcliqueset import PodCliqueSet, ScalingGroupConfig
from grove.api.quantity import exact
from grove.api.topology import ClusterTopologyBinding, TopologyConstraint
from grove.dialects.translation import set_name
from grove.fleet.checks import MOST_PRIORITY
from grove.fleet.file import Trace
from grove.fleet.manifests import GPU, QUEUE
from grove.fleet.trace import Job, write_trace
from grove.kube.cache import Cache
from grove.kube.client import Client

NO_TEAM = "others"
LONGEST_PART = 12
"""Characters that are left of the name of a part, where all of it is too long for a fleet file."""
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
        was_up, is_up = (node is not None and node.is_ready for node in (old, new))
        if was_up and not is_up and self.is_synced:  # a new node is not ready at first: that is no failure
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
            "lasts": f"{math.floor(seconds) + 1}s",
            "cluster": _cluster(list(cache.list(Node)), bindings, recorder, seconds),
            "teams": _teams(records, quotas, values),
            "work": {
                "serving": serving_rows(serving, [Trace(file=row["file"]).stem for row in traces]),
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


def serving_rows(records: list[SetRecord], taken: Collection[str] = ()) -> list[Json]:
    """Sets as serving sets. Sets of one name, from several namespaces, get a number. `taken` are names of traces."""
    rows = [_serving(record) for record in records]
    names = _numbered((row["name"] for row in rows), taken)
    return [_with_short_names(row | {"name": name}) for row, name in zip(rows, names, strict=True)]


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
        arrival_s=math.floor(10 * record.since_s) / 10,
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
    parts = [*_group_parts(pcs), *_clique_parts(pcs)]
    load = 0.5 * min([part["replicas"] for part in parts], default=1) * pcs.spec.replicas
    return {
        "name": pcs.metadata.name,
        "team": _team(pcs),
        "replicas": max(1, pcs.spec.replicas),
        "load": {"peak": load, "low": load},
        **_packed(pcs.spec.template.topology_constraint),
        "parts": parts,
    }


def _group_parts(pcs: PodCliqueSet) -> Iterator[Json]:
    cliques = {clique.name: clique.spec for clique in pcs.spec.template.cliques}
    for group in _groups(pcs):
        members = [cliques[name] for name in group.clique_names if name in cliques]
        yield {
            "name": group.name,
            "pods": max(1, sum(clique.replicas for clique in members)),
            "gpus": max((_gpus(clique.pod_spec) for clique in members), default=0),
            **_instances(group.replicas, group.min_available or 1, group.scale_config),
            **_packed(group.topology_constraint),
        }


def _clique_parts(pcs: PodCliqueSet) -> Iterator[Json]:
    """Cliques outside every group. Each of their pods is an instance: it is ready and is scaled by itself."""
    members = {name for group in _groups(pcs) for name in group.clique_names}
    for clique in pcs.spec.template.cliques:
        if clique.name not in members:
            spec = clique.spec
            yield {
                "name": clique.name,
                "gpus": _gpus(spec.pod_spec),
                **_instances(spec.replicas, spec.minimum, spec.auto_scaling_config),
                **_packed(clique.topology_constraint),
            }


def _instances(replicas: int | None, minimum: int, scale: AutoScalingConfig | None) -> Json:
    count = max(1, replicas or 1)
    most = max(count, scale.max_replicas) if scale is not None else 0
    return {
        "replicas": count,
        "minAvailable": max(1, min(minimum, count)),
        "maxReplicas": most,
        "requestsPerSecond": 1.0,
    }


def _packed(constraint: TopologyConstraint | None) -> Json:
    return {"pack": pack} if (pack := _pack(constraint)) else {}


def _with_short_names(row: Json) -> Json:
    """The same set with names that a fleet file may have: a part's name is in the names of its cliques, too."""
    longest = MAX_COMBINED_LENGTH - len(row["name"])
    if all(_length_inside(part) <= longest for part in row["parts"]):
        return row
    names = _numbered(part["name"][:LONGEST_PART].rstrip("-") for part in row["parts"])
    parts = [part | {"name": name} for part, name in zip(row["parts"], names, strict=True)]
    return row | {"name": set_name(row["name"], max(_length_inside(part) for part in parts)), "parts": parts}


def _length_inside(part: Json) -> int:
    """Characters of a part's name and of the longest name of its cliques."""
    return len(part["name"]) + len(part["name"] if part.get("pods", 1) == 1 else f"{part['name']}-worker")


def _numbered(names: Iterable[str], taken: Iterable[str] = ()) -> Iterator[str]:
    """The names, each once: a name that was there before, or is taken, gets a number."""
    seen = set(taken)
    for name in names:
        unique, number = name, 2
        while unique in seen:
            unique, number = f"{name}-{number}", number + 1
        seen.add(unique)
        yield unique


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
