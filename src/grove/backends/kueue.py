"""What a set may ask of Kueue: the rules that admission checks, whichever scheduler places the pods."""

from __future__ import annotations

from collections.abc import Iterator

from grove.api.koordinator import QUOTA
from grove.api.kueue import MOST_ROLES, OWN_KEYS, QUEUE, queue_of
from grove.api.labels import KAI_QUEUE
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podrequest import pod_request
from grove.api.words import many
from grove.backends.uniform import values_of

_QUEUE_PATH = f"metadata.labels[{QUEUE}]"


def kueue_faults(pcs: PodCliqueSet) -> Iterator[tuple[str, str]]:
    """Field path and what is wrong."""
    cliques = pcs.spec.template.cliques
    for at, clique in enumerate(cliques):
        for part, keys in (("labels", clique.labels), ("annotations", clique.annotations)):
            for key in sorted(set(OWN_KEYS) & set(keys)):
                path = f"spec.template.cliques[{at}].{part}[{key}]"
                yield path, f"Grove sets this key: name the queue once, by the label {QUEUE} of the PodCliqueSet"
    if not queue_of(pcs):
        return
    for other in (QUOTA, KAI_QUEUE):
        if any(values_of(pcs, other)):
            why = f"a set is in one queue: Kueue admits it by {QUEUE}, or its scheduler counts it by {other}, not both"
            yield _QUEUE_PATH, why
    if len(cliques) > MOST_ROLES:
        why = f"Kueue admits a gang of at most {MOST_ROLES} cliques, and this set has {many(len(cliques), 'clique')}"
        yield "spec.template.cliques", why


def kueue_change_faults(pcs: PodCliqueSet, stored: PodCliqueSet) -> Iterator[tuple[str, str]]:
    """The changes of the queue that an existing set cannot make.

    Users can remove the label: pods that wait are then made without it.
    """
    queue, before = queue_of(pcs), queue_of(stored)
    if queue and queue != before:
        was = f'was admitted in queue "{before}"' if before else "was made without Kueue"
        yield _QUEUE_PATH, f"this set {was}: delete the set and create it again to move it"
    if not queue or not before:
        return
    requests = {clique.name: pod_request(clique.spec.pod_spec) for clique in stored.spec.template.cliques}
    for at, clique in enumerate(pcs.spec.template.cliques):
        old, new = requests.get(clique.name), pod_request(clique.spec.pod_spec)
        if old is None or old == new:
            continue
        changed = ", ".join(sorted(name for name in {*old, *new} if old.get(name, 0) != new.get(name, 0)))
        why = f"Kueue counts its gangs by the requests of before ({changed}): delete the set and create it again"
        yield f"spec.template.cliques[{at}].spec.podSpec", why
