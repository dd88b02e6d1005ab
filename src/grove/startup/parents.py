"""The cliques that a pod waits for, and how many of their pods count. Arithmetic only; `pods` watches them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
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

    A pod that is being deleted answers at its host name until its containers have ended, also while its successor
    exists. A client that connects then may reach the old pod and lose it soon after. So a parent does not count while
    two pods have one host name. This lasts only for the time that the old pod needs to end, because a pod on a lost
    node never ends.
    """

    def __init__(self, parents: Mapping[str, int], condition: str = READY, *, now: Callable[[], float]) -> None:
        self._needed, self._condition, self._now = dict(parents), condition, now
        self._ready: dict[str, dict[str, str]] = {name: {} for name in parents}
        """Of each parent the pods that count, with their host names."""
        self._leaving: dict[str, tuple[str, float]] = {}
        """Pods of parents that are being deleted: host name, and when they have to be gone."""

    def saw(self, pod: Mapping[str, Any]) -> None:
        """Takes the pod's latest state."""
        self.lost(pod)
        name, clique = _identity(pod)
        if clique not in self._ready:
            return
        host = str((pod.get("spec") or {}).get("hostname", ""))
        if counts(pod, self._condition):
            self._ready[clique][name] = host
        elif host and (gone_at := _gone_at(pod)):
            self._leaving[name] = host, gone_at

    def lost(self, pod: Mapping[str, Any]) -> None:
        """Takes that the pod is gone."""
        name, clique = _identity(pod)
        self._ready.get(clique, {}).pop(name, None)
        self._leaving.pop(name, None)

    def forget(self) -> None:
        """Starts over, before a fresh list."""
        self._leaving.clear()
        for ready in self._ready.values():
            ready.clear()

    @property
    def is_enough(self) -> bool:
        return all(len(self._ready[name]) >= needed for name, needed in self._needed.items()) and not self._old()

    def _old(self) -> list[str]:
        """Pods that leave and still have the host name of a pod that counts."""
        hosts = {host for ready in self._ready.values() for host in ready.values()}
        now = self._now()
        return sorted(name for name, (host, gone_at) in self._leaving.items() if host in hosts and now < gone_at)

    def __str__(self) -> str:
        parts = [f"{name}={len(self._ready[name])}/{needed}" for name, needed in sorted(self._needed.items())]
        return ", ".join([*parts, *(f"the end of {name}" for name in self._old())])


def _identity(pod: Mapping[str, Any]) -> tuple[str, str]:
    metadata = pod.get("metadata") or {}
    return str(metadata.get("name", "")), str((metadata.get("labels") or {}).get(CLIQUE_LABEL, ""))


def _gone_at(pod: Mapping[str, Any]) -> float:
    """When a pod that is being deleted must be gone; 0 for one that stays, or has nothing that runs."""
    deleted = (pod.get("metadata") or {}).get("deletionTimestamp")
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    if not deleted or not any("running" in (container.get("state") or {}) for container in containers):
        return 0.0
    return datetime.fromisoformat(deleted).timestamp()


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
        return bool(containers) and all("running" in (container.get("state") or {}) for container in containers)
    return bool((pod.get("spec") or {}).get("nodeName"))
