"""A gang whose pods share device claims, as it would be tried first: each claim on the best node for it."""

from __future__ import annotations

import numpy as np

from grove.scheduler.devices.shared_claims import on_nodes
from grove.scheduler.loop.deciding.decisions import devices_lacking, shared_claims_of
from grove.scheduler.loop.state.view import View
from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.gang import Gang


def at_best_homes(view: View, gang: Gang) -> Gang:
    """The gang as the first try would have it, for explanations."""
    gang, shared_claims = shared_claims_of(view, gang)
    if not shared_claims:
        return gang
    sites = view.sources.sites(view.snapshot, np.ones(view.snapshot.nodes.rows, dtype=np.bool_))
    nodes = next(sites.choices(shared_claims), None)
    if nodes is not None:
        return on_nodes(gang, shared_claims, nodes)
    shared = sites.lacking(shared_claims) or shared_claims[0]
    return gang.with_pods({pod.uid: _blocked(pod, devices_lacking(shared)) for pod in shared.users})


def _blocked(pod: PodFacts, why: str) -> PodFacts:
    return pod.asking(blocked=why)
