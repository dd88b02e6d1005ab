"""What will happen to sets that another operator of Grove made once ours runs; decided as the operator decides it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grove.api import labels
from grove.api.core import Pod
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet, is_paused
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.operator.podcliqueset.takeover import takeover
from grove.operator.shared.children import awaits_takeover, template_hashes, wanted_access
from grove.operator.shared.layout import unit_of
from grove.operator.shared.rollout import is_rolling
from grove.operator.shared.startup import mounts_token


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one set: pods that stay, and pods that an update replaces, by clique template.

    `continues`: the update is one the other operator began; else the templates changed after it last looked. `held`
    says why outdated pods stay all the same. `schedulers` are those its gangs were made for. `drops_access`: account,
    role and token of the set go: it has no start order, no clique runs under that account, no pod mounts that token.
    """

    stays: int
    replaced: dict[str, int]
    continues: bool
    held: str = ""
    schedulers: tuple[str, ...] = ()
    drops_access: bool = False


def forecast(
    pcs: PodCliqueSet,
    cliques: Iterable[PodClique],
    groups: Iterable[PodCliqueScalingGroup],
    gangs: Iterable[PodGang],
    pods: Iterable[Pod],
) -> Forecast | None:
    """The effects of a takeover on a set; None if the set is new or ours already."""
    if not awaits_takeover(pcs) or pcs.metadata.is_deleting:
        return None
    cliques, gangs, pods = list(cliques), list(gangs), [pod for pod in pods if not pod.metadata.is_deleting]
    plan = takeover(pcs, cliques, groups, gangs)
    hashes = {
        **template_hashes(pcs),
        **{adopted_hash.clique_name: adopted_hash.used_hash for adopted_hash in plan.adopted},
    }
    units = {clique.metadata.name: unit_of(pcs, clique) for clique in cliques}
    replaced: dict[str, int] = {}
    for pod in pods:
        unit = units.get(pod.metadata.labels.get(labels.POD_CLIQUE, ""))
        if unit is not None and pod.metadata.labels.get(labels.POD_TEMPLATE_HASH) != hashes[unit.template.name]:
            replaced[unit.template.name] = replaced.get(unit.template.name, 0) + 1
    held = "" if is_rolling(pcs) else "its strategy is OnDelete"
    held = "its rollout is paused" if not held and is_paused(pcs) else held
    named = {gang.metadata.labels.get(labels.SCHEDULER_NAME, "") for gang in gangs}
    return Forecast(
        stays=len(pods) - sum(replaced.values()),
        replaced=replaced,
        continues=plan.continues,
        held=held,
        schedulers=tuple(sorted(named - {""})),
        drops_access=not wanted_access(pcs) and not any(mounts_token(pod, pcs.metadata.name) for pod in pods),
    )
