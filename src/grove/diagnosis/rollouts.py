"""An update of a set as people ask about it: what is old and new, which unit is down, since when, waiting for what.

Pure: from what was read to values; `rollout status` prints them, `status` and `explain` say their sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from grove.api import conditions as words
from grove.api import labels
from grove.api.core import Pod
from grove.api.hashes import is_behind, is_outdated
from grove.api.meta import Json, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import ON_DELETE, CliqueTemplate, PodCliqueSet, is_paused, partition_of, set_partition
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.api.words import many
from grove.diagnosis.draining import drain_lines
from grove.diagnosis.revisions import Parts, lines_of, parts_of, wanted_hashes
from grove.diagnosis.seen import Seen
from grove.diagnosis.states import PAUSED, UPDATING
from grove.diagnosis.words import age

DONE = "done"
"""The state of an update that is over; the other states are those of its set."""
IN_SENTENCE = 2
"""Replicas that are down and are named in the sentence; further ones have a line of their own."""
HELD = "a partition holds the other units until it is lowered"
NOT_TAKEN_UP = "the operator has not taken up the new template yet"


@dataclass(frozen=True, slots=True)
class Role:
    """The pods of one clique template, old and new. Images are those of its first container that differ, else all."""

    clique: str
    hash: str
    image: str
    updated: int
    pods: int
    old_images: tuple[str, ...] = ()
    old_hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Down:
    """A replica of the set that is being updated: since when, and what it waits for.

    `serves`: all its parts have their minimum, so it is not down.
    """

    name: str
    since: datetime | None
    waits_for: str
    serves: bool = False

    @property
    def state(self) -> str:
        return f"{self.name} is being updated" if self.serves else f"{self.name} is down"


@dataclass(frozen=True, slots=True)
class Rollout:
    state: str
    hash: str
    started: datetime | None
    ended: datetime | None
    roles: tuple[Role, ...]
    down: tuple[Down, ...]
    on_delete: bool = False
    stalled: bool = False
    sentence: str = ""
    paused: bool = False
    """The set is paused, also while no update is under way."""
    held: bool = False
    """The update has done what the partitions allow, and waits until one is lowered."""
    parts: Parts = field(default_factory=Parts)
    lines: tuple[str, ...] = ()
    """What `parts` says, in words; both only where one set is asked about."""
    set_state: str = ""
    """The state of the set, as `status` has it, with its reason in `set_reason`; only for one set."""
    set_reason: str = ""

    @property
    def updated(self) -> int:
        return sum(role.updated for role in self.roles)

    @property
    def pods(self) -> int:
        return sum(role.pods for role in self.roles)

    @property
    def outdated(self) -> int:
        return self.pods - self.updated


def rollout_of(seen: Seen, pcs: PodCliqueSet, now: datetime) -> Rollout:
    progress = pcs.status.update_progress
    roles = tuple(_roles(seen, pcs))
    strategy = pcs.spec.update_strategy
    on_delete = strategy is not None and strategy.type == ON_DELETE
    is_open = progress is not None and progress.update_started_at is not None and progress.update_ended_at is None
    outdated = sum(role.pods - role.updated for role in roles)
    state = DONE
    if is_paused(pcs) and (is_open or (outdated and not on_delete)):
        state = PAUSED
    elif is_open or (outdated and not on_delete and is_behind(pcs)):
        state = UPDATING
    down = tuple(_down(seen, pcs)) if state == UPDATING else ()
    stalled = is_true(pcs.status.conditions, words.UPDATE_STALLED)
    held = is_open and state == UPDATING and not down and _has_partition(pcs)
    rollout = Rollout(
        state,
        pcs.status.current_generation_hash,
        progress.update_started_at if progress else None,
        progress.update_ended_at if progress else None,
        roles,
        down,
        on_delete,
        stalled,
        held=held,
    )
    sentence = _sentence(rollout, now) if is_open or state != UPDATING else f"{NOT_TAKEN_UP}: {_count(rollout)}"
    if is_paused(pcs) and state != PAUSED:
        sentence = f"{sentence}; updates are paused"
    return replace(rollout, sentence=sentence, paused=is_paused(pcs))


def whole_rollout_of(seen: Seen, pcs: PodCliqueSet, now: datetime) -> Rollout:
    """With its revisions, budgets, slices, surge units and pods that drain."""
    rollout = rollout_of(seen, pcs, now)
    parts = parts_of(seen, pcs, is_open=rollout.state != DONE)
    return replace(rollout, parts=parts, lines=(*lines_of(parts, now), *drain_lines(seen, pcs, now)))


def _has_partition(pcs: PodCliqueSet) -> bool:
    groups = pcs.spec.template.pod_clique_scaling_groups
    return bool(set_partition(pcs)) or any(partition_of(group.rolling_update) for group in groups)


def _count(rollout: Rollout) -> str:
    return f"{rollout.updated} of {many(rollout.pods, 'pod')} up to date"


def _sentence(rollout: Rollout, now: datetime) -> str:
    count = _count(rollout)
    if rollout.state == PAUSED:
        return f"the update is paused: {count}"
    if rollout.state == UPDATING:
        where = "; ".join(
            down.state
            + (f" since {age(down.since, now)}" if down.since else "")
            + (f", waits for {down.waits_for}" if down.waits_for else "")
            for down in rollout.down[:IN_SENTENCE]
        )
        where = HELD if rollout.held else where
        text = f"updating: {count}" + (f"; {where}" if where else "")
        return f"{text}; no progress within its deadline" if rollout.stalled else text
    if rollout.outdated and rollout.on_delete:
        return f"{many(rollout.outdated, 'pod')} run the earlier template until a person deletes them (OnDelete)"
    return f"up to date: {count}" if rollout.pods else "nothing to update"


def is_of_update(pcs: PodCliqueSet, pod: Pod) -> bool:
    """True if the pod was made from the template that the set has now."""
    role = role_of(pod.metadata.labels.get(labels.POD_CLIQUE, ""), pcs)
    if role is None:
        return False
    return not is_outdated(pcs, pod.metadata.labels, wanted_hashes(pcs)[role.name], _part_of(pcs, role.name))


def _part_of(pcs: PodCliqueSet, clique: str) -> str:
    """The scaling group of a clique, or the clique itself: the parts that have an update strategy."""
    group = pcs.spec.template.find_group_of(clique)
    return clique if group is None else group.name


def _roles(seen: Seen, pcs: PodCliqueSet) -> Iterable[Role]:
    template = pcs.spec.template
    by_role: dict[str, list[Pod]] = {}
    for clique in seen.of_set(seen.cliques, pcs):
        role = _template_of(clique.metadata.name, clique.metadata.labels, pcs)
        pods = seen.pods_of_clique.get(clique.metadata.key, ())
        by_role.setdefault(role, []).extend(pod for pod in pods if not pod.metadata.is_deleting)
    hashes = wanted_hashes(pcs)
    for template_clique in template.cliques:
        wanted = hashes[template_clique.name]
        pods = by_role.get(template_clique.name, [])
        part = _part_of(pcs, template_clique.name)
        old = [pod for pod in pods if is_outdated(pcs, pod.metadata.labels, wanted, part)]
        image = _image(template_clique.spec.pod_spec)
        yield Role(
            template_clique.name,
            wanted,
            image,
            len(pods) - len(old),
            len(pods),
            tuple(sorted({_pod_image(pod) for pod in old} - {""})),
            tuple(sorted({pod.metadata.labels.get(labels.POD_TEMPLATE_HASH, "") for pod in old} - {"", wanted})),
        )


def _template_of(name: str, own: Mapping[str, str], pcs: PodCliqueSet) -> str:
    """The template a clique was made from: the longest template name its own ends in."""
    fitting = [clique.name for clique in pcs.spec.template.cliques if name.endswith(f"-{clique.name}")]
    return max(fitting, key=len, default="")


def role_of(name: str, pcs: PodCliqueSet) -> CliqueTemplate | None:
    """The template of the clique of that object name."""
    return pcs.spec.template.find_clique(_template_of(name, {}, pcs))


def _image(pod_spec: Json) -> str:
    containers = pod_spec.get("containers") or [{}]
    return str(containers[0].get("image", ""))


def _pod_image(pod: Pod) -> str:
    return next((container.image for container in pod.spec.containers if container.image), "")


def _down(seen: Seen, pcs: PodCliqueSet) -> Iterable[Down]:
    progress = pcs.status.update_progress
    for replica_update in progress.currently_updating if progress is not None else ():
        if replica_update.update_ended_at is not None:
            continue
        index = str(replica_update.replica_index)
        cliques = [
            clique
            for clique in seen.of_set(seen.cliques, pcs)
            if clique.metadata.labels.get(labels.REPLICA_INDEX) == index
        ]
        groups = [
            group for group in seen.of_set(seen.groups, pcs) if group.metadata.labels.get(labels.REPLICA_INDEX) == index
        ]
        name, since = f"{pcs.metadata.name}-{index}", replica_update.update_started_at
        yield Down(name, since, _waits_for(seen, cliques), _serves(seen, cliques, groups))


def _serves(seen: Seen, cliques: Iterable[PodClique], groups: Iterable[PodCliqueScalingGroup]) -> bool:
    """True if every standalone clique of a replica has its minimum ready, and every group its minimum of instances."""
    standalone = (clique for clique in cliques if labels.SCALING_GROUP not in clique.metadata.labels)
    return all(
        sum(pod.is_ready for pod in _staying(seen, clique)) >= clique.spec.current_minimum for clique in standalone
    ) and all(group.status.available_replicas >= min(group.spec.replicas, group.spec.min_available) for group in groups)


def _staying(seen: Seen, clique: PodClique) -> list[Pod]:
    return [pod for pod in seen.pods_of_clique.get(clique.metadata.key, ()) if not pod.metadata.is_deleting]


def _waits_for(seen: Seen, cliques: Iterable[PodClique]) -> str:
    """The first clique of a replica with fewer ready pods than it should have, and how many."""
    for clique in cliques:
        pods = _staying(seen, clique)
        ready = sum(pod.is_ready for pod in pods)
        if ready < clique.spec.replicas:
            unbound = sum(not pod.is_bound for pod in pods)
            where = f", {unbound} without a node" if unbound else ""
            return f"{clique.metadata.name} ({ready} of {clique.spec.replicas} ready{where})"
    return ""
