"""How many GPUs are used for what, at one moment. Pure.

Every GPU of the nodes is in one of four states: serving, starting, broken or held, or it is idle. The GPUs that waiting
pods request are no part of the nodes: they are a state beside these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from grove.api.pod import Pod, PodHealth, pod_health
from grove.scheduler.policy.queue_tree import THOUSANDTHS

SERVING, STARTING, BROKEN, HELD = "serving", "starting", "broken", "held"
WAITING, IDLE = "waiting", "idle"


class Owner(NamedTuple):
    """The set and the queue that GPUs are counted for.

    Pods of no set have an empty `set`. Where there are no queues, `queue` is empty.
    """

    namespace: str = ""
    set: str = ""
    queue: str = ""


NO_OWNER = Owner()


class PodUse(NamedTuple):
    """The GPUs of one pod, and what they are used for."""

    owner: Owner
    state: str
    gpus: float


def gpus_of(amounts: Iterable[tuple[str, int]]) -> float:
    """GPUs in amounts of resources. A GPU may be published under several names, whole and in parts."""
    return max((amount * THOUSANDTHS[name] for name, amount in amounts if name in THOUSANDTHS), default=0) / 1000


def state_of(pod: Pod) -> str:
    """The state in which a pod that has not ended uses its GPUs."""
    if not pod.is_bound:
        return WAITING
    health = pod_health(pod)
    if health is PodHealth.READY:
        return SERVING
    return STARTING if health is PodHealth.STARTING else BROKEN


def gpu_states(pods: Iterable[PodUse], held: Mapping[Owner, float], total: float) -> dict[tuple[Owner, str], float]:
    """GPUs by owner and state. All states but `waiting` add up to `total`, the GPUs of the nodes.

    Capacity that is held may still be in use by pods that terminate. Then it counts for these pods.
    """
    states: dict[tuple[Owner, str], float] = {}
    for owner, state, gpus in pods:
        if gpus:
            states[owner, state] = states.get((owner, state), 0.0) + gpus
    left = max(0.0, total - sum(gpus for (_, state), gpus in states.items() if state != WAITING))
    for owner, gpus in sorted(held.items()):
        if (taken := min(gpus, left)) > 0:
            states[owner, HELD] = taken
            left -= taken
    if left > 0:
        states[NO_OWNER, IDLE] = left
    return states
