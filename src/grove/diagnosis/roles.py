"""Pods by the part they play: `chat/decode/0 leader` instead of `chat-0-decode-0-leader-x2k4p`. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.diagnosis.rollouts import role_of
from grove.diagnosis.seen import Seen


@dataclass(frozen=True, slots=True)
class Player:
    """A pod and the part it plays. `copy` is the replica of its scaling group; -1 outside every group."""

    pod: Pod
    replica: int
    group: str
    copy: int
    clique: str
    index: int

    def label(self, *, many_replicas: bool) -> str:
        whose = f"{self.replica}:" if many_replicas else ""
        return (
            f"{whose}{self.group}/{self.copy}/{self.clique}-{self.index}"
            if self.group
            else (f"{whose}{self.clique}-{self.index}")
        )


class NoSuchRole(Exception):
    """No pod plays that part; the text says which parts there are."""


def players(
    seen: Seen,
    pcs: PodCliqueSet,
    part: str = "",
    copy: int | None = None,
    clique: str = "",
    replica: int | None = None,
) -> list[Player]:
    """Pods of a set: those of a group or clique (`part`), of one copy of it (for a clique: one pod), of one clique."""
    groups, cliques = _parts(pcs)
    if part and part not in groups | cliques:
        raise NoSuchRole(f"{pcs.metadata.name} has no group or clique {part}; it has {_listed(groups | cliques)}")
    if clique and clique not in cliques:
        raise NoSuchRole(f"{pcs.metadata.name} has no clique {clique}; it has {_listed(cliques)}")
    found_players = []
    for pod_clique in seen.of_set(seen.cliques, pcs):
        role = role_of(pod_clique.metadata.name, pcs)
        if role is None:
            continue
        at, group, number = _instance_of(pod_clique, pcs)
        for pod in seen.pods_of_clique.get(pod_clique.metadata.key, ()):
            index = _number(pod.metadata.labels.get(labels.POD_INDEX))
            found_players.append(Player(pod, at, group, number, role.name, index))
    chosen = [
        player
        for player in found_players
        if (not part or part in (player.group, player.clique))
        and (not clique or player.clique == clique)
        and (replica is None or player.replica == replica)
        and (copy is None or (player.copy if player.group and part == player.group else player.index) == copy)
        and not player.pod.metadata.is_deleting
    ]
    if not chosen:
        raise NoSuchRole(f"no pod of {pcs.metadata.name} is there for that; it has {_listed(groups | cliques)}")
    return sorted(
        chosen,
        key=lambda player: (
            player.replica,
            player.group,
            player.copy,
            player.clique,
            player.index,
            player.pod.metadata.name,
        ),
    )


def cliques_of_part(seen: Seen, pcs: PodCliqueSet, part: str, copy: int | None = None) -> list[PodClique]:
    """The cliques of a group or a clique (`part`), or of one copy of it; also those without pods."""
    groups, _ = _parts(pcs)
    found_cliques = []
    for pod_clique in seen.of_set(seen.cliques, pcs):
        role = role_of(pod_clique.metadata.name, pcs)
        _, group, number = _instance_of(pod_clique, pcs)
        if role is None or part not in (group, role.name):
            continue
        if copy is None or (number == copy if part in groups else copy < pod_clique.spec.replicas):
            found_cliques.append(pod_clique)
    return found_cliques


def _parts(pcs: PodCliqueSet) -> tuple[set[str], set[str]]:
    """The names of the groups and of the cliques in the template."""
    template = pcs.spec.template
    groups = {config.name for config in template.pod_clique_scaling_groups}
    return groups, {clique.name for clique in template.cliques}


def _instance_of(clique: PodClique, pcs: PodCliqueSet) -> tuple[int, str, int]:
    """Replica of the set, group, and number of the group's replica; -1 for a clique outside every group."""
    own = clique.metadata.labels
    fqn, at = own.get(labels.SCALING_GROUP, ""), _number(own.get(labels.REPLICA_INDEX))
    group = fqn.removeprefix(f"{pcs.metadata.name}-{at}-") if fqn else ""
    return at, group, _number(own.get(labels.SCALING_GROUP_REPLICA_INDEX)) if group else -1


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
