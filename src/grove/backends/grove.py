"""grove-scheduler: reads PodGangs itself, waits for whole gangs and for the base gang before scaled ones.

PodGangs carry node label keys. So this backend needs no topology object, no object beside the PodGang, and no gate on
pods, which saves one write for each pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from grove.api.core import Pod
from grove.api.koordinator import RESERVATION_AFFINITY, RESERVATION_REF
from grove.api.labels import GROVE_SCHEDULER, KAI_FRACTIONS, KAI_QUEUE, NETWORK_AFFINITY
from grove.api.meta import Json
from grove.api.podcliqueset import EXPLICIT, IN_ORDER, PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.reservation_ref import InvalidAnnotation, reservation_affinity
from grove.api.topology import ClusterTopologyBinding
from grove.backends.base import PodSite, Refusal, TopologyBackend, TopologySync
from grove.backends.queues import QueueRule
from grove.backends.uniform import queue_faults
from grove.config import Section, read_section

NAME = GROVE_SCHEDULER
OFF = (
    "the feature gate GroveIntegration of grove-scheduler is off, so it would place the pods one by one. Sets for it "
    "are refused until the gate is on again"
)


class GroveBackend(TopologyBackend):
    """`takes_gangs` is False while the scheduler's feature gate is off."""

    name = NAME
    queue = QueueRule(NAME, KAI_QUEUE, ("labels",))
    spreads = frozenset({"set", "group", "clique"})
    needs_gate = False
    reports_gang_status = True
    answers_replacements = True

    def __init__(self, takes_gangs: bool = True) -> None:
        self.takes_gangs = takes_gangs

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        refusals = [Refusal(*fault) for fault in queue_faults(pcs)]
        if not self.takes_gangs:
            refusals.append(Refusal("spec", OFF))
        for at, clique in enumerate(pcs.spec.template.cliques):
            for key in KAI_FRACTIONS:
                if key in clique.annotations:
                    why = "is KAI's; with grove-scheduler ask for koordinator.sh/gpu-core and …/gpu-memory-ratio"
                    refusals.append(Refusal(f"spec.template.cliques[{at}].annotations[{key}]", why))
        if ref := pcs.metadata.annotations.get(RESERVATION_REF):
            try:
                reservation_affinity(ref)
            except InvalidAnnotation as error:
                refusals.append(Refusal(f"metadata.annotations[{RESERVATION_REF}]", str(error)))
        return tuple(refusals)

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        super().prepare_pod(pod, site)
        annotations = site.gang.metadata.annotations if site.gang is not None else site.pcs.metadata.annotations
        if reference := annotations.get(RESERVATION_REF):
            meta: Json = pod["metadata"]
            meta.setdefault("annotations", {})[RESERVATION_AFFINITY] = json.dumps(reservation_affinity(reference))

    def gang_annotations(self, pcs: PodCliqueSet, gang: PodGang | None, pods: Sequence[Pod]) -> Mapping[str, str]:
        """Cliques that start one after the other talk to each other, unless the set says itself who does."""
        if NETWORK_AFFINITY in pcs.metadata.annotations or not (links := links_by_start_order(pcs)):
            return {}
        return {NETWORK_AFFINITY: links}

    def topology_drift(self, binding: ClusterTopologyBinding, reference: str, observed: Json | None) -> TopologySync:
        if reference != binding.metadata.name:
            message = f"grove-scheduler reads the binding itself; topologyReference must be {binding.metadata.name}"
            return TopologySync(False, message)
        return TopologySync(True, observed_generation=binding.metadata.generation)


def links_by_start_order(pcs: PodCliqueSet) -> str:
    """Pairs of cliques of which one waits for the other, as the annotation has them; empty without an order."""
    template = pcs.spec.template
    names = [clique.name for clique in template.cliques]
    pairs: list[tuple[str, str]] = []
    if template.clique_startup_type == IN_ORDER:
        pairs = list(zip(names[1:], names, strict=False))
    elif template.clique_startup_type == EXPLICIT:
        pairs = [
            (clique.name, parent)
            for clique in template.cliques
            for parent in clique.spec.starts_after
            if parent in names
        ]
    return ",".join(f"{child}={parent}" for child, parent in dict.fromkeys(pairs))


class _Options(Section):
    grove_integration: bool = True


def build(options: Json, path: str) -> GroveBackend:
    return GroveBackend(read_section(_Options, options, path).grove_integration)
