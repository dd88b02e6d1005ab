"""What the chosen scheduler backend can honour: which scheduler a set uses, its queue, and whether it takes topology.

A backend that needs more brings its own rule (`Backend.validate`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.syntax import subdomain_fault
from grove.admission.rules.view import TEMPLATE, SetView
from grove.api.faults import Fault, forbidden, internal, invalid
from grove.api.fields import mapping, text
from grove.api.headroom import wanted_headroom
from grove.api.labels import GROVE_SCHEDULER, HEADROOM, SCHEDULER_ANNOTATION, VOLCANO_SCHEDULER
from grove.api.podcliqueset import PodCliqueSet
from grove.backends import QUEUES, Backends
from grove.backends.base import Backend, Refusal
from grove.backends.constraints import spreads_of
from grove.backends.kueue import kueue_change_faults, kueue_faults
from grove.backends.uniform import qos_faults

SCHEDULER_PATH = f"{TEMPLATE}.cliques.spec.podSpec.schedulerName"


def schedulers_of(new: SetView, backends: Backends) -> set[str]:
    """The schedulers that cliques of a set name, themselves or by the set's annotation; one, if all is well."""
    scheduler = text(new.annotations.get(SCHEDULER_ANNOTATION))
    return {backends.name_of(clique.scheduler_name or scheduler) for clique in new.cliques}


def backend_faults(new: SetView, old: SetView | None, backends: Backends, lookups: Known) -> Iterator[Fault]:
    names = sorted(schedulers_of(new, backends))
    if len(names) > 1:
        yield invalid(SCHEDULER_PATH, names, "all cliques must use the same scheduler")
    for name in names:
        if backends.find(name) is None:
            listed = ", ".join(backend.name for backend in backends.all)
            detail = f"scheduler is not enabled in the operator configuration, which has: {listed}"
            yield invalid(SCHEDULER_PATH, name, f"{detail}; an administrator adds it to scheduler.profiles there")
    backend = backends.find(names[0]) if len(names) == 1 else None
    if backend is None:
        return
    queue_faults = _new_queue_faults(backend, new, old, backends, lookups)
    yield from queue_faults
    pcs, stored = _decoded(new), _decoded(old)
    if pcs is None:
        return
    if not queue_faults:  # a backend that checks the same would only say it again
        # What was admitted once runs, whatever the cluster has lost since: it must stay possible to edit it.
        before = _refusals(backend, stored) if stored is not None else {}
        for path, message in _refusals(backend, pcs):
            if (path, message) not in before:
                yield forbidden(path, message)
    if stored is not None:
        for path, message in (*backend.validate_change(pcs, stored), *kueue_change_faults(pcs, stored)):
            yield forbidden(path, message)


def _refusals(backend: Backend, pcs: PodCliqueSet) -> dict[tuple[str, str], None]:
    """The parts of a set that its scheduler, or every scheduler, refuses: each once and in order."""
    return dict.fromkeys(
        [
            *backend.validate(pcs),
            *_spread_refusals(backend, pcs),
            *_headroom_refusals(backend, pcs),
            *qos_faults(pcs),
            *kueue_faults(pcs),
        ]
    )


def _headroom_refusals(backend: Backend, pcs: PodCliqueSet) -> Iterator[Refusal]:
    if backend.name == GROVE_SCHEDULER:
        return
    places = [("metadata.annotations", pcs.metadata.annotations)]
    for at, group in enumerate(pcs.spec.template.pod_clique_scaling_groups):
        places.append((f"spec.template.podCliqueScalingGroups[{at}].annotations", group.annotations))
    for path, given in places:
        if wanted_headroom(given):
            yield Refusal(f"{path}.{HEADROOM}", f"{backend.name} holds no headroom; {GROVE_SCHEDULER} does")


def _spread_refusals(backend: Backend, pcs: PodCliqueSet) -> Iterator[Refusal]:
    for spread in spreads_of(pcs):
        if spread.owner not in backend.spreads and backend.spreads:
            what = {"set": "replicas of a set", "group": "replicas of a scaling group", "clique": "pods"}[spread.owner]
            yield Refusal(spread.path, f"{backend.name} spreads pods and cannot spread {what}; {GROVE_SCHEDULER} can")
        elif spread.owner not in backend.spreads:
            yield Refusal(spread.path, f"{backend.name} takes no spread constraint; {GROVE_SCHEDULER} does")


def _decoded(view: SetView | None) -> PodCliqueSet | None:
    """The set as backends read it; None for one that an older schema let in and that does not decode."""
    try:
        return msgspec.convert(view.raw, PodCliqueSet) if view is not None else None
    except msgspec.ValidationError:
        return None


def volcano_queues(new: SetView) -> set[str]:
    """The queues a set asks of Volcano; more than one is a fault."""
    pcs = _decoded(new)
    return set(QUEUES[VOLCANO_SCHEDULER].queues(pcs)) if pcs is not None else set()


def _new_queue_faults(
    backend: Backend, new: SetView, old: SetView | None, backends: Backends, lookups: Known
) -> list[Fault]:
    """Without what the stored set has too: it may run on another scheduler, which was the default when it was made."""
    faults = list(_queue_faults(backend, new, old, lookups))
    if not faults or old is None or schedulers_of(old, backends) != {backend.name}:
        return faults
    before = list(_queue_faults(backend, old, old, lookups))
    return [fault for fault in faults if fault not in before]


def _queue_faults(backend: Backend, new: SetView, old: SetView | None, lookups: Known) -> Iterator[Fault]:
    rule, pcs = QUEUES.get(backend.name), _decoded(new)
    if rule is None or pcs is None or not (rule.is_needed or rule.default):
        return
    queues = rule.queues(pcs)
    if backend.name == VOLCANO_SCHEDULER:
        for queue in queues:
            if wrong := subdomain_fault(queue):
                yield invalid("spec", queue, f"{rule.key}: {wrong}")
                return
    faults = [invalid("spec", value, message) for value, message in rule.faults(pcs)]
    yield from faults
    if backend.name != VOLCANO_SCHEDULER or faults:
        return
    stored = _decoded(old)
    # Upstream asks on every update, so closing a queue would block edits of what runs in it.
    if not queues or (stored is not None and rule.queues(stored) == queues):
        return
    try:
        queue_object = lookups.find_queue(queues[0])
    except LookupFailed as error:
        yield internal("spec", f'Volcano queue "{queues[0]}" could not be read: {error}')
        return
    if queue_object is None:
        yield invalid("spec", queues[0], "no such Volcano queue")
    elif (state := text(mapping(queue_object.get("status")).get("state"))) != "Open":
        yield invalid("spec", queues[0], f'Volcano queue is not open (its state is "{state}")')
