"""Warnings about a set that is admitted: fields that will not do what they seem to say."""

from __future__ import annotations

from collections.abc import Iterator

from grove.admission.rules.view import CliqueView, SetView
from grove.api.fields import text
from grove.api.labels import SCHEDULER_ANNOTATION

_OVERWRITTEN = ("schedulingGates", "hostname", "subdomain")


def notes(new: SetView, old: SetView | None = None) -> Iterator[str]:
    if old is not None and new.annotations.get(SCHEDULER_ANNOTATION) != old.annotations.get(SCHEDULER_ANNOTATION):
        yield (
            f"metadata.annotations[{SCHEDULER_ANNOTATION}]: what runs stays with its scheduler; "
            "to move the set, scale it to 0 replicas and back"
        )
    for clique in new.cliques:
        path = f"{clique.path}.spec.podSpec"
        yield from _restart_notes(path, clique)
        for field in _OVERWRITTEN:
            if clique.pod_spec.get(field):
                yield f"{path}.{field}: Grove sets this field, the value given here is not used"


def _restart_notes(path: str, clique: CliqueView) -> Iterator[str]:
    """Upstream warns about every pod, even the default; here only a policy that lets a gang lose members is told."""
    policy = text(clique.pod_spec.get("restartPolicy"))
    if policy not in ("OnFailure", "Never"):
        return
    ended = "ended" if policy == "Never" else "ended without an error"
    yield (
        f"{path}.restartPolicy: with {policy} a container that has {ended} is not started again; once fewer than "
        f"{clique.min_available or 1} pods run, the whole gang is terminated after terminationDelay"
    )
