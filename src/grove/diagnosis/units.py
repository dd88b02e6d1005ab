"""The smallest part of a set that holds some pods, as `restart` takes it. Pure."""

from __future__ import annotations

from collections.abc import Collection

from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.diagnosis.advice import gang_subject
from grove.diagnosis.roles import NoSuchRole, players
from grove.diagnosis.seen import Seen


def smallest_unit(seen: Seen, gang: PodGang, pcs: PodCliqueSet, pods: Collection[str]) -> str:
    """`SET/GROUP/N` for pods of one instance, `SET/CLIQUE/N` or `pod/NAME` for a single pod, else the gang."""
    try:
        mine = [player for player in players(seen, pcs) if player.pod.metadata.name in pods]
    except NoSuchRole:  # this user may not read the cliques
        return gang_subject(gang, pcs)
    units = {(player.group, player.copy) if player.group else (player.clique, player.index) for player in mine}
    if len(units) != 1 or len({player.replica for player in mine}) != 1:
        return gang_subject(gang, pcs)
    if pcs.spec.replicas == 1:
        [(part, number)] = units
        return f"{pcs.metadata.name}/{part}/{number}"
    [first, *others] = mine
    return f"pod/{first.pod.metadata.name}" if not (first.group or others) else gang_subject(gang, pcs)
