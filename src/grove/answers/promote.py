"""`rollout promote`: lowers a partition, so that the units that it held back get the new template."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grove.answers.answer import Answer, Unanswered
from grove.answers.rollout import refuse_translated, sentence_answer, write_change
from grove.answers.subjects import set_called
from grove.api.meta import Json
from grove.api.podcliqueset import ON_DELETE, PodCliqueSet, is_paused, partition_of, set_partition
from grove.api.words import many
from grove.diagnosis.revisions import released_units
from grove.diagnosis.seen import read
from grove.diagnosis.words import listed
from grove.kube.client import Client

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Promotion:
    """A partition of a set, or of one of its scaling groups, before and after; `units` get the new template."""

    name: str
    group: str
    before: int
    after: int
    units: tuple[str, ...]
    paused: bool = False
    dry_run: bool = False

    @property
    def target(self) -> str:
        return f"{self.name}/{self.group}" if self.group else self.name

    @property
    def moves(self) -> str:
        if not self.units:
            return "no unit is outdated and released"
        verb = many(len(self.units), "unit gets", "units get")
        return f"{verb} the new template: {listed(self.units, MOST_NAMED)}"


async def asked_for(client: Client, namespace: str, target: str, to: int) -> Promotion:
    name, _, group = target.partition("/")
    seen = await set_called(client, namespace, name, read)
    pcs = seen.sets[0]
    refuse_translated(pcs)
    strategy = pcs.spec.update_strategy
    if strategy is not None and strategy.type == ON_DELETE:
        raise Unanswered(f"the strategy of {name} is {ON_DELETE}: a partition has no effect")
    before = _partition(pcs, group)
    if to > before:
        raise Unanswered(f"the partition of {target} is {before}; promote does not raise it to {to}")
    units = released_units(seen, pcs, group, before, to)
    return Promotion(pcs.metadata.name, group, before, to, units, is_paused(pcs))


def _partition(pcs: PodCliqueSet, group: str) -> int:
    if not group:
        return set_partition(pcs)
    groups = {config.name: config for config in pcs.spec.template.pod_clique_scaling_groups}
    if group not in groups:
        there = ", ".join(sorted(groups)) or "none"
        raise Unanswered(f"{pcs.metadata.name} has no scaling group {group}; its scaling groups: {there}")
    return partition_of(groups[group].rolling_update)


async def promote_answer(client: Client, namespace: str, asked: Promotion, *, dry_run: bool = False) -> Answer:
    done = replace(asked, dry_run=dry_run)
    if asked.before == asked.after:
        return sentence_answer(done, f"the partition of {asked.target} is {asked.after} already", False)
    await write_change(client, namespace, asked.name, lambda raw: lowered(raw, asked), dry_run=dry_run)
    text = f"the partition of {asked.target} goes from {asked.before} to {asked.after}; {asked.moves}"
    if asked.paused:
        text += f". Updates of {asked.name} are paused: kubectl grove rollout resume {asked.name} lets it go on"
    return sentence_answer(done, text, dry_run)


def lowered(raw: Json, asked: Promotion) -> Json:
    """The merge patch that lowers the partition; it holds for the version it was made from."""
    version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
    if not asked.group:
        strategy = {"rollingUpdate": {"partition": _least(raw["spec"].get("updateStrategy"), asked.after)}}
        return {"metadata": version, "spec": {"updateStrategy": strategy}}
    groups = []
    for config in raw["spec"]["template"].get("podCliqueScalingGroups") or ():
        if config["name"] == asked.group:
            own = {**(config.get("rollingUpdate") or {}), "partition": _least(config, asked.after)}
            config = {**config, "rollingUpdate": own}
        groups.append(config)
    return {"metadata": version, "spec": {"template": {"podCliqueScalingGroups": groups}}}


def _least(owner: Json | None, after: int) -> int:
    """Never above what is there: another user may have lowered it meanwhile."""
    there = ((owner or {}).get("rollingUpdate") or {}).get("partition") or 0
    return min(int(there), after)
