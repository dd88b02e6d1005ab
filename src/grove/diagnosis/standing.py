"""The facts that decide a state, read from objects alone: conditions, counts and pods. No diagnosis changes a state,
so the console, which makes none, and the command line, which does, say the same word. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from grove.api import conditions as words
from grove.api import names
from grove.api.hashes import is_behind
from grove.api.meta import Key, find_condition, is_true
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.termination import breached_since, termination_delay
from grove.diagnosis.seen import Seen
from grove.diagnosis.states import Facts, state_of, worst_of
from grove.diagnosis.tree import State, TreeEntry
from grove.diagnosis.unapplied import unapplied_topology

PODS_COMING = "WaitingForPods"


def cliques_of(seen: Seen, gang: PodGang) -> list[PodClique]:
    keys = (Key(gang.metadata.namespace, group.name) for group in gang.spec.podgroups)
    return [seen.clique_of[key] for key in keys if key in seen.clique_of]


def gang_facts(seen: Seen, gang: PodGang, cliques: Sequence[PodClique], leaves: Sequence[TreeEntry]) -> Facts:
    """`leaves` are the gang's cliques with their pods."""
    of = {entry.name: entry for entry in leaves}
    entries = [pod for entry in leaves for pod in entry.children if pod.state is not State.LEAVING]
    conditions = gang.status.conditions
    condition = find_condition(conditions, words.SCHEDULED)
    stands = condition is not None and condition.status == words.TRUE
    known = [clique for clique in cliques if clique.metadata.name in of]
    failed = any(entry.state is State.FAILED for entry in entries)
    return Facts(
        serves=bool(known)
        and all(of[clique.metadata.name].count.ready >= clique.spec.current_minimum for clique in known),
        whole=bool(known) and all(of[clique.metadata.name].count.ready >= clique.spec.replicas for clique in known),
        placed=stands or any(entry.count.scheduled for entry in entries) or _remembers(known),
        trouble=failed or any(_is_refused(clique) for clique in cliques) or _no_node(seen, gang),
        waits=(not stands and _is_complete(gang)) or any(entry.state is State.PENDING for entry in entries),
        astray=is_true(conditions, words.TOPOLOGY_NOT_HONOURED),
    )


def _remembers(cliques: Sequence[PodClique]) -> bool:
    return bool(cliques) and all(is_true(clique.status.conditions, words.WAS_SCHEDULED) for clique in cliques)


def _is_refused(clique: PodClique) -> bool:
    return bool(clique.status.last_errors) and clique.status.replicas < clique.spec.replicas


def _no_node(seen: Seen, gang: PodGang) -> bool:
    """True if a scheduler said of a pod of this gang that no node can take it."""
    for pod in seen.pods_of_gang.get(gang.metadata.key, ()):
        if pod.is_bound or pod.is_gated or pod.metadata.is_deleting:
            continue
        condition = find_condition(pod.status.conditions, "PodScheduled")
        if condition is not None and condition.status == words.FALSE:
            return True
    return False


def _is_complete(gang: PodGang) -> bool:
    """True if all pods of a gang exist, as far as its conditions say, so that it waits for its scheduler."""
    condition = find_condition(gang.status.conditions, words.SCHEDULED)
    if condition is not None:
        return condition.reason != PODS_COMING
    ready = find_condition(gang.status.conditions, words.SCHEDULER_OBJECTS_READY)
    return is_true(gang.status.conditions, words.INITIALIZED) or (ready is not None and ready.status == words.FALSE)


def set_state(
    seen: Seen,
    pcs: PodCliqueSet,
    tree: TreeEntry,
    gangs: Mapping[str, Facts],
    rollout: str,
    *,
    unattended: bool = False,
) -> str:
    """A set that serves is degraded by any trouble. One that does not is as the worst of its base gangs.

    A set is not whole before its gangs exist. Until then a refusal of the API server is its trouble.
    """
    refused = not gangs and (bool(pcs.status.last_errors) or bool(refused_cliques(seen, pcs)))
    own = Facts(
        wanted=tree.count.wanted or (pcs.spec.replicas if not _at_zero(seen, pcs) else 0),
        serves=any(_serves(seen, pcs, replica) for replica in tree.children),
        whole=bool(gangs) and bool(tree.count.wanted) and tree.count.ready >= tree.count.wanted,
        placed=any(gang.placed for gang in gangs.values()),
        trouble=unattended or refused or any(gang.trouble for gang in gangs.values()),
        waits=any(gang.waits for gang in gangs.values()),
        astray=any(gang.astray for gang in gangs.values()) or unapplied_topology(pcs) is not None,
        rollout=rollout,
        behind=is_behind(pcs),
        deleting=pcs.metadata.is_deleting,
    )
    base = [facts for name, facts in gangs.items() if is_base(pcs, name)]
    if own.serves or unattended or own.deleting or not own.wanted or not base:
        return state_of(own)
    return worst_of(state_of(replace(facts, rollout=rollout)) for facts in base)


def refused_cliques(seen: Seen, pcs: PodCliqueSet) -> list[PodClique]:
    """Cliques of the set with an error of the API server."""
    return [clique for clique in seen.of_set(seen.cliques, pcs) if clique.status.last_errors]


def is_base(pcs: PodCliqueSet, gang: str) -> bool:
    index = gang.removeprefix(f"{pcs.metadata.name}-")
    return index.isdecimal() and gang == names.base_gang(pcs.metadata.name, int(index))


def _at_zero(seen: Seen, pcs: PodCliqueSet) -> bool:
    """True if every clique and group of the set exists and was scaled to 0."""
    counts = [clique.spec.replicas for clique in seen.of_set(seen.cliques, pcs)]
    counts += [group.spec.replicas for group in seen.of_set(seen.groups, pcs)]
    return not pcs.spec.replicas or (bool(counts) and not any(counts))


def _serves(seen: Seen, pcs: PodCliqueSet, replica: TreeEntry) -> bool:
    """True if each standalone clique of the replica has its minimum ready, and each group its minimum of instances."""
    namespace = pcs.metadata.namespace
    groups = {group.metadata.name: group.spec for group in seen.of_set(seen.groups, pcs)}

    def is_ready(entry: TreeEntry) -> bool:
        clique = seen.clique_of.get(Key(namespace, entry.name))
        return clique is not None and entry.count.ready >= clique.spec.current_minimum

    for child in replica.children:
        if child.kind == "PodClique":
            if not is_ready(child):
                return False
        elif (spec := groups.get(child.name)) is not None:
            whole = sum(
                bool(tree_entry.children) and all(map(is_ready, tree_entry.children)) for tree_entry in child.children
            )
            if whole < min(spec.replicas, spec.min_available):
                return False
    return bool(replica.children) and bool(replica.count.wanted)


def fate_of(seen: Seen, pcs: PodCliqueSet, cliques: Iterable[PodClique]) -> str:
    """The operator's next action on cliques below their minimum; empty if no timer runs."""
    if is_true(pcs.status.conditions, words.GANG_RESTARTS_EXHAUSTED):
        return "left as it is: restarts exhausted"
    since = [breached_since(clique.status.conditions, words.WAS_SCHEDULED) for clique in cliques]
    due: datetime | None = min((moment for moment in since if moment is not None), default=None)
    return f"will be restarted whole at {due + termination_delay(pcs):%H:%M} UTC" if due is not None else ""
