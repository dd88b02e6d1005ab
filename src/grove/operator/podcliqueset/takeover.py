"""Takes over a set from another operator of Grove and keeps its pods.

This operator cannot compute the other operator's hashes, and need not. If a hash stands for the current template,
`status.adoptedHashes` records it as another name of our own hash. A template that changes has a new hash without
another name, so an update begins, as with any set.

- tied: the hash in a clique's status that stands beside the set's recorded generation.
- the same: this operator would make the clique's pods from the set exactly as the clique describes them.
- current: the set's status has seen the set as it is (observedGeneration).

The name of a template is the tied hash of a current set. Otherwise it is the label of cliques that are the same.
Otherwise, in a current set that is not being updated, it is the label that all its cliques have. If every template
that has cliques has a name, the generation gets the recorded one; otherwise an update begins. So in the middle of an
update, pods of the new template stay and those of the old one are updated. The decision is pure, and the same until
the set changes: `doctor --takeover` predicts it, and the operator carries it out.

Hashes of an earlier version of this operator can be computed. If they stand for the current set, they are recorded in
the same way, so an upgrade of the operator restarts no pod. So is an edit of the priority class alone, if the scheduler
reads it from the gang and not from the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from grove.api.hashes import NOW, Reading, generation_hash, hash_in_use, is_own, pod_template_hash
from grove.api.labels import POD_TEMPLATE_HASH
from grove.api.meta import Json
from grove.api.podclique import PodClique, PodCliqueSpec
from grove.api.podcliqueset import AdoptedHash, CliqueTemplate, PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.shared.children import (
    awaits_takeover,
    earlier_priority,
    earlier_reading,
    wanted_cliques,
    wanted_members,
)
from grove.operator.shared.layout import unit_of
from grove.operator.shared.rollout import is_open

_OURS = ("grove.io/", "app.kubernetes.io/")


@dataclass(frozen=True, slots=True)
class Takeover:
    """The record of a set that another operator made.

    `kept` and `updated` are clique templates: those all of whose cliques are from the set's templates as they are, and
    those of which some are not. `continues`: what that operator recorded is the set as it is, so no update begins that
    it had not begun.
    """

    adopted: tuple[AdoptedHash, ...]
    continues: bool
    kept: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    maker: str = "another operator"
    """Empty if it was this one."""

    @property
    def message(self) -> str:
        sentence = f"taken over from {self.maker}"
        if self.continues and not self.updated:
            return f"{sentence}: its pods stay as they are"
        changed = ", ".join(self.updated) or "nothing"
        return f"{sentence} in the middle of a change: updated is {changed}, the rest stays as it is"


def takeover(
    pcs: PodCliqueSet,
    cliques: Iterable[PodClique],
    groups: Iterable[PodCliqueScalingGroup],
    gangs: Iterable[PodGang],
) -> Takeover:
    """The record for a set that awaits its takeover, from all its cliques, groups and gangs."""
    if (reading := earlier_reading(pcs)) is not None:
        return _from_earlier_version(pcs, reading)
    gangs = list(gangs)
    if not awaits_takeover(pcs) and (priority := earlier_priority(pcs, gangs)) is not None:
        return _with_other_priority(pcs, priority)
    template, recorded = pcs.spec.template, pcs.status.current_generation_hash
    own = {clique.name: pod_template_hash(clique, template.priority_class_name) for clique in template.cliques}
    wanted = _wanted(pcs, groups)
    is_current = pcs.status.observed_generation == pcs.metadata.generation
    same_priority = all(gang.spec.priority_class_name == template.priority_class_name for gang in gangs)
    adopted: list[AdoptedHash] = []
    kept, updated = list[str](), list[str]()
    by_template = _by_template(pcs, cliques)
    for name, members in by_template.items():
        hashes = _tied(members, recorded) if is_current else set()
        if not hashes and same_priority:
            hashes = {_label(clique) for clique in members if _is_same(clique, wanted.get(clique.metadata.name))}
        if not hashes and is_current and not is_open(pcs.status.update_progress):
            hashes = {_label(clique) for clique in members}
        hashes = {hash_ for hash_ in hashes if hash_ and not is_own(hash_)}
        if len(hashes) == 1:
            adopted.append(AdoptedHash(clique_name=name, own_hash=own[name], used_hash=next(iter(hashes))))
        is_whole = len(hashes) == 1 and all(_has_become(clique, next(iter(hashes))) for clique in members)
        (kept if is_whole else updated).append(name)
    continues = len(adopted) == len(by_template) and (is_current or same_priority)
    if continues:
        adopted.insert(0, AdoptedHash(own_hash=generation_hash(template), used_hash=recorded))
    return Takeover(tuple(adopted), continues, tuple(kept), tuple(updated))


def _from_earlier_version(pcs: PodCliqueSet, reading: Reading) -> Takeover:
    template = pcs.spec.template
    earlier = generation_hash(template, reading=reading)
    adopted = [AdoptedHash(own_hash=generation_hash(template), used_hash=earlier)]
    for clique in template.cliques:
        own, used = (pod_template_hash(clique, template.priority_class_name, reading=by) for by in (NOW, reading))
        if own != used:
            adopted.append(AdoptedHash(clique_name=clique.name, own_hash=own, used_hash=used))
    kept = tuple(clique.name for clique in template.cliques)
    return Takeover(tuple(adopted), continues=True, kept=kept, maker="an earlier version")


def _with_other_priority(pcs: PodCliqueSet, before: str) -> Takeover:
    template, status = pcs.spec.template, pcs.status
    adopted = [AdoptedHash(own_hash=generation_hash(template), used_hash=status.current_generation_hash)]
    for clique in template.cliques:
        own = pod_template_hash(clique, template.priority_class_name)
        used = hash_in_use(status.adopted_hashes, clique.name, pod_template_hash(clique, before))
        if own != used:
            adopted.append(AdoptedHash(clique_name=clique.name, own_hash=own, used_hash=used))
    return Takeover(tuple(adopted), continues=True, kept=tuple(clique.name for clique in template.cliques), maker="")


def _by_template(pcs: PodCliqueSet, cliques: Iterable[PodClique]) -> dict[str, list[PodClique]]:
    """The cliques of the set, by the name of their template, in the order of the templates."""
    by_template: dict[str, list[PodClique]] = {template.name: [] for template in pcs.spec.template.cliques}
    for clique in cliques:
        unit = unit_of(pcs, clique) if not clique.metadata.is_deleting else None
        if unit is not None:
            by_template[unit.template.name].append(clique)
    return {name: members for name, members in by_template.items() if members}


def _wanted(pcs: PodCliqueSet, groups: Iterable[PodCliqueScalingGroup]) -> dict[str, Json]:
    members = (member for group in groups for member in wanted_members(pcs, group))
    return {body["metadata"]["name"]: body for body in (*wanted_cliques(pcs), *members)}


def _tied(cliques: Iterable[PodClique], generation: str) -> set[str]:
    """Template hashes that the cliques' status names together with this generation."""
    hashes: set[str] = set()
    for clique in cliques:
        status, progress = clique.status, clique.status.update_progress
        if progress is not None and progress.pod_clique_set_generation_hash == generation:
            hashes.add(progress.pod_template_hash)
        elif status.current_pod_clique_set_generation_hash == generation:
            hashes.add(status.current_pod_template_hash)
    return hashes


def _is_same(clique: PodClique, wanted: Json | None) -> bool:
    """True if a clique has the content that we would write, as far as its pods depend on it."""
    if wanted is None:
        return False
    meta = wanted["metadata"]
    ours = _content(wanted["spec"]["podSpec"], meta["labels"], meta.get("annotations") or {})
    return _content(clique.spec.pod_spec, clique.metadata.labels, clique.metadata.annotations) == ours


def _content(pod_spec: Json, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    users = {name: value for name, value in labels.items() if not name.startswith(_OURS)}
    spec = PodCliqueSpec(pod_spec=pod_spec)
    return pod_template_hash(CliqueTemplate(labels=users, annotations=dict(annotations), spec=spec))


def _has_become(clique: PodClique, hash_: str) -> bool:
    """True if a clique and all its pods are from this template."""
    return _label(clique) == hash_ and clique.status.updated_replicas >= clique.status.replicas


def _label(clique: PodClique) -> str:
    return clique.metadata.labels.get(POD_TEMPLATE_HASH, "")
