"""GPUs by state at one moment: every GPU of the nodes is counted once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import objects

from grove.api.pod import Pod
from grove.scheduler.policy.gpu_states import (
    BROKEN,
    HELD,
    IDLE,
    NO_OWNER,
    SERVING,
    STARTING,
    WAITING,
    Owner,
    PodUse,
    gpu_states,
    gpus_of,
    state_of,
)

CHAT, CODE = Owner("prod", "chat", "team-a"), Owner("prod", "code", "team-b")


@pytest.mark.parametrize(
    ("amounts", "gpus"),
    [
        ((), 0.0),
        ((("cpu", 4000),), 0.0),
        ((("nvidia.com/gpu", 8),), 8.0),
        ((("amd.com/gpu", 2), ("cpu", 1)), 2.0),
        ((("koordinator.sh/gpu-core", 50),), 0.5),
        ((("koordinator.sh/gpu-core", 100), ("nvidia.com/gpu", 1)), 1.0),
    ],
)
def test_gpus_in_amounts_of_resources(amounts: tuple[tuple[str, int], ...], gpus: float) -> None:
    assert gpus_of(amounts) == gpus


def pod_in_state(node: str = "n", *, ready: bool = False, waiting: str = "") -> Pod:
    containers = [{"name": "main", "state": {"waiting": {"reason": waiting}}}] if waiting else []
    conditions = objects.conditions(Ready="True") if ready else []
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": containers}
    return objects.pod(spec={"nodeName": node}, status=status)


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (pod_in_state(""), WAITING),
        (pod_in_state(ready=True), SERVING),
        (pod_in_state(), STARTING),
        (pod_in_state(waiting="ContainerCreating"), STARTING),
        (pod_in_state(waiting="CrashLoopBackOff"), BROKEN),
        (pod_in_state(waiting="ImagePullBackOff"), BROKEN),
    ],
)
def test_what_a_pod_uses_its_gpus_for(one: Pod, state: str) -> None:
    assert state_of(one) == state


def test_what_is_left_is_idle_and_what_waits_is_beside_it() -> None:
    pods = [PodUse(CHAT, SERVING, 8), PodUse(CHAT, SERVING, 8), PodUse(CODE, WAITING, 16), PodUse(CODE, STARTING, 4)]
    assert gpu_states(pods, {CODE: 6}, 32) == {
        (CHAT, SERVING): 16,
        (CODE, WAITING): 16,
        (CODE, STARTING): 4,
        (CODE, HELD): 6,
        (NO_OWNER, IDLE): 6,
    }


def test_held_capacity_that_is_still_in_use_counts_for_its_users() -> None:
    assert gpu_states([PodUse(CHAT, SERVING, 8)], {CODE: 8}, 8) == {(CHAT, SERVING): 8}


owners = st.sampled_from([CHAT, CODE, NO_OWNER])
uses = st.builds(PodUse, owners, st.sampled_from([SERVING, STARTING, BROKEN, WAITING]), st.integers(0, 8).map(float))


@given(st.lists(uses, max_size=12), st.dictionaries(owners, st.integers(0, 40).map(float)), st.integers(0, 64))
def test_every_gpu_of_the_nodes_is_counted_once(pods: list[PodUse], held: dict[Owner, float], more: int) -> None:
    total = sum(one.gpus for one in pods if one.state != WAITING) + more
    found = gpu_states(pods, held, total)
    assert math.isclose(sum(gpus for (_, state), gpus in found.items() if state != WAITING), total)
    assert all(gpus > 0 for gpus in found.values())
