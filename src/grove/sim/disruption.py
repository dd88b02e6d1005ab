"""Disruption budgets and eviction: the budget's status kept current, and the door that reads it.

The status is what a real disruption controller would write, a moment after the pods changed. An eviction trusts the
status alone and spends from it, so two evictions at once cannot both use the last allowance.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from grove.api.meta import Json, Key, Resource
from grove.kube.errors import Unavailable
from grove.sim import refusals
from grove.sim.custom import scale_of
from grove.sim.kinds import BUDGET, POD
from grove.sim.pods import is_ready
from grove.sim.selectors import selector_match
from grove.sim.store import Change

if TYPE_CHECKING:
    from grove.sim.server import SimServer


class DisruptionController:
    """Recomputes a namespace's budgets after its pods or budgets changed."""

    def __init__(self, server: SimServer, *, delay_s: float = 0.01) -> None:
        self._server, self._delay_s = server, delay_s
        self._dirty: dict[str, None] = {}
        server.store.listeners.append(self._note)

    def _note(self, resource: Resource, change: Change) -> None:
        if resource not in (POD, BUDGET):
            return
        namespace = change.version.key.namespace
        if namespace in self._dirty:
            return
        budgets = self._server.all(BUDGET, namespace)
        if not budgets or (resource == POD and not any(_concerns(budget, change) for budget in budgets)):
            return
        self._dirty[namespace] = None
        asyncio.get_running_loop().call_later(self._delay_s, self._recompute, namespace)

    def _recompute(self, namespace: str) -> None:
        self._dirty.pop(namespace, None)
        for budget in self._server.all(BUDGET, namespace):
            status = self._status(budget)
            if status != budget.get("status"):
                self._server.store.put(BUDGET, {**budget, "status": status})

    def _status(self, budget: Json) -> Json:
        match, spec = selector_match(budget["spec"].get("selector")), budget["spec"]
        pods = [p for p in self._server.all(POD, budget["metadata"]["namespace"]) if match(p)]
        disrupted = {
            name: since
            for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
            if any(p["metadata"]["name"] == name and not p["metadata"].get("deletionTimestamp") for p in pods)
        }
        healthy = [
            p
            for p in pods
            if is_ready(p) and not p["metadata"].get("deletionTimestamp") and p["metadata"]["name"] not in disrupted
        ]
        if (wanted := spec.get("minAvailable")) is not None:
            expected = len(pods) if isinstance(wanted, int) else self._expected(pods)
            desired = _share(wanted, expected)
        else:
            expected = self._expected(pods)
            desired = max(0, expected - _share(spec.get("maxUnavailable", 0), expected))
        status: Json = {
            "observedGeneration": budget["metadata"]["generation"],
            "expectedPods": expected,
            "desiredHealthy": desired,
            "currentHealthy": len(healthy),
            "disruptionsAllowed": max(0, len(healthy) - desired) if expected else 0,
        }
        return {**status, "disruptedPods": disrupted} if disrupted else status

    def _expected(self, pods: list[Json]) -> int:
        """How many pods there should be: what the owners' scale says, else how many there are."""
        owners: dict[str, int] = {}
        for pod in pods:
            refs = pod["metadata"].get("ownerReferences") or ()
            ref = next((r for r in refs if r.get("controller")), None)
            uid = ref["uid"] if ref else pod["metadata"]["uid"]
            if uid in owners:
                continue
            owners[uid] = self._wanted(ref, pod["metadata"]["namespace"]) if ref else 1
        return sum(owners.values())

    def _wanted(self, ref: Json, namespace: str) -> int:
        kind = self._server.find_kind(ref["apiVersion"], ref["kind"])
        owner = self._server.find(kind.resource, ref["name"], namespace) if kind else None
        if kind is None or owner is None or kind.scale is None:
            return 0
        return int(scale_of(kind, owner)["spec"]["replicas"])


def _concerns(budget: Json, change: Change) -> bool:
    """True if the budget selects the pod, or selected it before the change."""
    match = selector_match(budget["spec"].get("selector"))
    return match(change.version.json) or (change.previous is not None and match(change.previous.json))


def _share(amount: Any, of: int) -> int:
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(of * int(amount[:-1]) / 100)
    return int(amount)


async def evict(server: SimServer, key: Key, *, uid: str = "", dry_run: bool = False, user: str = "") -> None:
    """Deletes the pod if its disruption budget allows; TooManyRequests when not now."""
    pod = server.get(POD, key).json
    meta = pod["metadata"]
    counts = pod["status"].get("phase") not in ("Succeeded", "Failed", "Pending") and not meta.get("deletionTimestamp")
    if counts and (not uid or uid == meta["uid"]):
        _spend(server, pod, dry_run=dry_run)
    await server.delete(POD, key, uid=uid, user=user, dry_run=dry_run)


def _spend(server: SimServer, pod: Json, *, dry_run: bool) -> None:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    budgets = [b for b in server.all(BUDGET, namespace) if selector_match(b["spec"].get("selector"))(pod)]
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Unavailable(why, code=500, reason="InternalError")
    if not budgets:
        return
    budget, status = budgets[0], budgets[0].get("status") or {}
    called = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise refusals.disruption_refused(called, "is still being processed by the server.")
    if not is_ready(pod):
        policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        if policy == "AlwaysAllow" or status["currentHealthy"] >= status["desiredHealthy"] > 0:
            return
    if status["disruptionsAllowed"] <= 0:
        needs = f"needs {status['desiredHealthy']} healthy pods and has {status['currentHealthy']} currently"
        raise refusals.disruption_refused(called, needs)
    if not dry_run:
        disrupted = {**(status.get("disruptedPods") or {}), name: server.stamp()}
        spent = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        server.store.put(BUDGET, {**budget, "status": spent})
