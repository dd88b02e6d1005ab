"""The cliques that a pod waits for, and how many of their pods count. Arithmetic only; `pods` watches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CLIQUE_LABEL = "grove.io/podclique"
GANG_LABEL = "grove.io/podgang"


READY, STARTED, CREATED = "Ready", "Started", "Created"
CONDITIONS = (READY, STARTED, CREATED)
"""What a pod of a parent must be to count; the values of `startsAfterCondition`."""


class BadArgument(ValueError):
    """An argument that cannot be used; the message is for the person who reads the container's log."""


def parse_parents(arguments: Iterable[str]) -> dict[str, int]:
    """The minimum of each parent from `name:minimum` arguments; a parent named twice needs the larger one."""
    parents: dict[str, int] = {}
    for argument in arguments:
        name, colon, count = argument.partition(":")
        if not name or not colon or not count.isascii() or not count.isdigit() or int(count) < 1:
            raise BadArgument(
                f"--podcliques={argument}: want <podclique>:<pods to wait for>, for example web-0-router:2"
            )
        parents[name] = max(parents.get(name, 0), int(count))
    if not parents:
        raise BadArgument("nothing to wait for: give at least one --podcliques=<podclique>:<minimum>")
    return parents


class Readiness:
    """Which pods of each parent count now: those that are Ready, or Started or Created if `condition` says so.

    A pod belongs to the clique its label names. Upstream compares name prefixes, which takes `x-0-ab` for `x-0-a`.
    """

    def __init__(self, parents: Mapping[str, int], condition: str = READY) -> None:
        self._needed, self._condition = dict(parents), condition
        self._ready: dict[str, set[str]] = {name: set() for name in parents}

    def saw(self, pod: Mapping[str, Any]) -> None:
        """Takes the pod's latest state."""
        name, clique = _identity(pod)
        if clique in self._ready:
            if counts(pod, self._condition):
                self._ready[clique].add(name)
            else:
                self._ready[clique].discard(name)

    def lost(self, pod: Mapping[str, Any]) -> None:
        """Takes that the pod is gone."""
        name, clique = _identity(pod)
        if clique in self._ready:
            self._ready[clique].discard(name)

    def forget(self) -> None:
        """Starts over, before a fresh list."""
        for ready in self._ready.values():
            ready.clear()

    @property
    def is_enough(self) -> bool:
        return all(len(self._ready[name]) >= needed for name, needed in self._needed.items())

    def __str__(self) -> str:
        return ", ".join(f"{name}={len(self._ready[name])}/{needed}" for name, needed in sorted(self._needed.items()))


def _identity(pod: Mapping[str, Any]) -> tuple[str, str]:
    metadata = pod.get("metadata") or {}
    return str(metadata.get("name", "")), str((metadata.get("labels") or {}).get(CLIQUE_LABEL, ""))


def counts(pod: Mapping[str, Any], condition: str) -> bool:
    """True if a pod that stays is Ready, has all its containers running (Started), or has a node (Created)."""
    status = pod.get("status") or {}
    if (pod.get("metadata") or {}).get("deletionTimestamp") or status.get("phase") in ("Succeeded", "Failed"):
        return False
    is_ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    if is_ready or condition == READY:
        return is_ready
    if condition == STARTED:
        containers = status.get("containerStatuses") or ()
        return bool(containers) and all("running" in (one.get("state") or {}) for one in containers)
    return bool((pod.get("spec") or {}).get("nodeName"))
