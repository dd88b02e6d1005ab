"""Faults that people make: every command names the cause, and the advice of `explain` ends it."""

from __future__ import annotations

import re

import pytest
from tests.support.asking import World, server
from tests.support.broken import (
    AS_ROOT,
    NO_COMMAND,
    PROBE,
    RUNC,
    SETTINGS,
    TOKEN,
    claim_bound,
    class_exists,
    cleaned,
    container,
    crashed,
    creating,
    default_class,
    ends_well,
    init_fails,
    keys_added,
    labelled,
    large_without_secret,
    level_added,
    level_removed,
    more_memory,
    mounting,
    no_account,
    no_priority,
    node_repaired,
    nodes_added,
    on_nodes,
    other_arguments,
    other_command,
    other_image,
    other_init_image,
    other_user,
    pod_hangs,
    pods_apart_deleted,
    priority_made,
    probe_of_the_port,
    pulling,
    registry_secret_made,
    secret_without_key,
    selected_node_is_cordoned,
    selects_nothing,
    started,
    starting_with,
    template,
    too_large,
    unprepared,
    unpulled_without_secret,
    updated_to_no_image,
    warned,
)
from tests.support.shell import Shell
from tests.support.situations import (
    Situation,
    agreed,
    clique_at_zero,
    full_rack_lost_a_node,
    in_two_racks,
    instance_hangs,
    instance_is_never_ready,
    mended,
    node_lost,
    operator_dead,
    paused,
    rack_too_small,
    scaled_to_zero,
    scheduler_dead,
    surplus_instance_waits,
    surplus_pod_failed,
    surplus_pods_wait,
    surplus_replica_waits,
    together_too_large,
    waits_for_quota,
)

from grove.answers.following import following
from grove.answers.tree import status_answer
from grove.api.core import ConfigMap, Secret
from grove.diagnosis.causes import DOCKER_CONFIG

BROKEN = {
    "no claim": Situation(
        mounting(None),
        "waiting",
        4,
        "PersistentVolumeClaim models does not exist",
        True,
        "create the",
        claim_bound,
    ),
    "no storage class": Situation(
        mounting({"storageClassName": "shared-nfs"}),
        "waiting",
        4,
        "StorageClass shared-nfs does not exist",
        True,
        "create the StorageClass shared-nfs",
        class_exists,
    ),
    "no default class": Situation(
        mounting({}),
        "waiting",
        4,
        "PersistentVolumeClaim models names no StorageClass",
        True,
        "kubectl annotate",
        default_class,
    ),
    "no free volume": Situation(
        mounting({"storageClassName": ""}),
        "waiting",
        4,
        "no PersistentVolume is free",
        True,
        "create a PersistentVolume",
        claim_bound,
    ),
    "a volume that is not there": Situation(
        mounting({"storageClassName": "", "volumeName": "pv-9"}),
        "waiting",
        4,
        "PersistentVolume pv-9 does not exist",
        True,
        "create the PersistentVolume pv-9",
        claim_bound,
    ),
    "no Secret": Situation(
        starting_with(env=TOKEN),
        "starting",
        3,
        "Secret hf-token does not exist",
        advises="create the Secret hf-token",
        cure=creating(Secret, "hf-token", data={"token": "eA=="}),
    ),
    "a Secret without the key": Situation(
        secret_without_key,
        "starting",
        3,
        "Secret hf-token has no key token",
        advises="add the key token",
        cure=keys_added,
    ),
    "no ConfigMap": Situation(
        starting_with(env=SETTINGS),
        "starting",
        3,
        "ConfigMap settings does not exist",
        advises="create the ConfigMap",
        cure=creating(ConfigMap, "settings", data={"s": "1"}),
    ),
    "image not found": Situation(
        pulling('Failed to pull image "example/c:1": not found'),
        "broken",
        4,
        r"image example/c:1 not found",
        advises="correct the image's name or tag",
        cure=template(other_image),
    ),
    "image refused": Situation(
        pulling("pull access denied"),
        "broken",
        4,
        "image example/c:1: the registry refuses the pull",
        advises="imagePullSecrets",
        cure=registry_secret_made,
    ),
    "no Secret for the registry": Situation(
        unpulled_without_secret,
        "broken",
        4,
        "Secret regcred does not exist; imagePullSecrets names it",
        advises="create the Secret regcred of type kubernetes.io/dockerconfigjson",
        cure=creating(Secret, "regcred", type=DOCKER_CONFIG, data={".dockerconfigjson": "e30="}),
    ),
    "registry silent": Situation(
        pulling("dial tcp: lookup registry: no such host"),
        "broken",
        4,
        "image example/c:1: the registry does not answer",
        advises="check the registry",
        cure=template(other_image),
    ),
    "an update to an image that does not exist": Situation(
        updated_to_no_image,
        "broken",
        4,
        r"image example/c:2 not found",
        advises="rollout undo chat",
        rolls=True,
    ),
    "bad image name": Situation(
        container({"waiting": {"reason": "InvalidImageName"}}),
        "broken",
        4,
        "image name example/c:1 is not valid",
        advises="correct the image",
        cure=template(other_image),
    ),
    "out of memory": Situation(
        crashed(137, "OOMKilled"),
        "broken",
        4,
        "container c is out of memory",
        advises="raise resources.limits.memory",
        cure=template(more_memory),
    ),
    "no such command": Situation(
        crashed(127, message="vllm: not found"),
        "broken",
        4,
        "container c cannot start its command: vllm: not found",
        advises="correct command and args",
        cure=template(other_command),
    ),
    "exit message": Situation(
        crashed(1, message="CUDA out of memory"),
        "broken",
        4,
        "container c ends with exit code 1: CUDA out of memory",
        advises="kubectl logs",
        cure=template(other_arguments),
    ),
    "a command that the runtime does not find": Situation(
        container({"waiting": {"reason": "RunContainerError", "message": f"{RUNC}{NO_COMMAND}: unknown"}}),
        "broken",
        4,
        'container c cannot start its command: exec: "vllm": executable file not found',
        advises="correct command and args",
        cure=template(other_command),
    ),
    "a command that ends": Situation(
        ends_well,
        "broken",
        4,
        "container c ends by itself with exit code 0, again and again",
        advises="so that it keeps running",
        cure=template(other_command),
    ),
    "an image of root": Situation(
        container({"waiting": {"reason": "CreateContainerConfigError", "message": AS_ROOT}}),
        "broken",
        4,
        "container c may not run as root, and its image does",
        advises="set securityContext.runAsUser of c",
        cure=template(other_user),
    ),
    "a volume that cannot be mounted": Situation(
        unprepared("FailedMount", 'MountVolume.SetUp failed for volume "v" : rpc error: code = Unknown desc = timeout'),
        "starting",
        3,
        "volume v cannot be mounted: timeout",
        advises="check the volume's CSI driver on node",
        cure=node_repaired,
    ),
    "a node without addresses": Situation(
        unprepared("FailedCreatePodSandBox", "Failed to create pod sandbox: desc = unable to allocate IP"),
        "starting",
        3,
        r"node \S+ cannot set up the pod: unable to allocate IP",
        advises="check the network plugin on node",
        cure=node_repaired,
    ),
    "init container": Situation(
        init_fails,
        "broken",
        4,
        "init container fetch ends with exit code 3: no model",
        advises="-c fetch --previous",
        cure=template(other_init_image),
    ),
    "probe of another port": Situation(
        warned(f"Readiness probe failed: {PROBE}"),
        "starting",
        3,
        "readiness probe on port 8000 refused; the container declares port 8080",
        advises="set the port of the readinessProbe to 8080",
        cure=probe_of_the_port,
    ),
    "cordoned nodes": Situation(
        on_nodes({"spec": {"unschedulable": True}}), "waiting", 4, ".*cordoned", True, "kubectl uncordon"
    ),
    "tainted nodes": Situation(
        on_nodes({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}}),
        "waiting",
        4,
        ".*maintenance",
        True,
        "remove or tolerate the taint maintenance",
    ),
    "the selected node is cordoned": Situation(
        selected_node_is_cordoned, "waiting", 4, r".*\(1 cordoned, 7 node selector", True, "kubectl uncordon"
    ),
    "a label that no node has": Situation(
        selects_nothing, "waiting", 4, ".*0/8 nodes", True, "kubectl label node NODE pool=h100", labelled
    ),
    "pods too large": Situation(too_large, "waiting", 4, ".*0/8 nodes", True, "ask for 8 nvidia.com/gpu"),
    "a rack too small": Situation(
        rack_too_small, "waiting", 4, r"no rack has capacity for \S+chat-0 \(5 pods\)", True, "add 1 node", nodes_added
    ),
    "a rack too small for both cliques together": Situation(
        together_too_large,
        "waiting",
        4,
        r"no rack has capacity for \S+chat-0 \(5 pods\); "
        r"rack \S+ has capacity for each of the 2 cliques alone, but not",
        True,
        "add 1 node",
        nodes_added,
    ),
    "no ServiceAccount": Situation(
        no_account,
        "waiting",
        4,
        ".*there is no ServiceAccount model-reader",
        True,
        "create serviceaccount model-reader",
    ),
    "no PriorityClass": Situation(
        no_priority,
        "waiting",
        4,
        ".*there is no PriorityClass ",
        True,
        "create it",
        priority_made,
    ),
    "quota": Situation(
        waits_for_quota,
        "waiting",
        4,
        "ResourceQuota few is full: pods 1 of 1 used, a pod asks for 1",
        True,
        "patch resourcequota few",
    ),
    "scaled to zero": Situation(scaled_to_zero, "stopped", 0, "is scaled to zero", advises="scale chat 1"),
    "the only clique at zero": Situation(
        clique_at_zero, "stopped", 0, "is scaled to zero", advises="scale chat/worker 1"
    ),
    "paused": Situation(paused, "paused", 3, "the update is paused", advises="rollout resume chat"),
    "a surplus replica waits": Situation(
        surplus_replica_waits, "degraded", 5, r"chat-[12](-worker)?: ", True, "add 4 nodes", nodes_added
    ),
    "a surplus instance waits": Situation(
        surplus_instance_waits, "degraded", 5, r"chat-0-pair-0: (needs|no) ", True, "add ", nodes_added
    ),
    "a surplus pod failed": Situation(
        surplus_pod_failed, "degraded", 5, r"c: CrashLoopBackOff", advises="restart chat/worker/"
    ),
    "surplus pods wait": Situation(
        surplus_pods_wait,
        "degraded",
        5,
        r"2 pods above the minimum wait: 0/8 nodes can take one more pod",
        advises="add 2 nodes like",
        cure=nodes_added,
    ),
    "a full rack lost a node": Situation(
        full_rack_lost_a_node,
        "broken",
        4,
        r"rack \S+ has no capacity for the rest of \S*chat-0",
        True,
        "restart pg/chat-0",
    ),
    "an instance hangs": Situation(
        instance_hangs, "degraded", 5, r"chat-0-pair-0: c: runs and is not ready", advises="restart chat/pair/1"
    ),
    "an instance is never ready": Situation(
        instance_is_never_ready, "starting", 3, r"chat-0-pair-0: its pods are starting", advises="restart chat/pair/1"
    ),
    "a node is lost": Situation(node_lost, "broken", 4, "node .* does not answer", advises="kubectl delete node"),
    "a pod crashes": Situation(pod_hangs, "broken", 4, "c: CrashLoopBackOff", advises="restart chat/leader/0"),
    "in two racks": Situation(
        in_two_racks,
        "degraded",
        5,
        r"its pods span a required topology domain",
        advises="delete the pods that stand apart",
        cure=pods_apart_deleted,
    ),
    "a level that the topology lost": Situation(
        level_removed,
        "degraded",
        5,
        r"a required topology is not applied: ClusterTopologyBinding \S+ has no level rack",
        advises="add the level to the ClusterTopologyBinding",
        cure=level_added,
    ),
    "operator dead": Situation(
        operator_dead,
        "broken",
        4,
        r"grove-operator does not run \(no process leads",
        True,
        "start grove-operator",
        started,
    ),
    "scheduler dead": Situation(
        scheduler_dead,
        "waiting",
        4,
        r"grove-scheduler does not run \(no process leads for ",
        True,
        "start grove-scheduler",
        started,
    ),
}
BROKEN["no Secret and no nodes"] = Situation(
    large_without_secret, "waiting", 4, ".*0/8 nodes", True, "ask for 8 nvidia.com/gpu", over="starting"
)
"""Pods without their Secret get nodes: what they wait for comes first."""
SAMPLE = ("no storage class", "quota", "a node is lost")
"""Rows that `make test` asks of a real API server: its own controllers and admission take part."""


SIMULATED = ("an instance is never ready",)
"""Rows that take a quarter of an hour."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.real_in("test" if name in SAMPLE else "soak")) for name in BROKEN]
)
async def test_every_command_names_the_cause_and_the_advice_ends_it(
    world: World, shell: Shell | None, name: str
) -> None:
    if name in SIMULATED and not world.cluster.is_sim:
        pytest.skip("it takes a quarter of an hour, which only the simulator has")
    situation = BROKEN[name]
    try:
        await agreed(world, situation)
        await mended(world, situation, shell)
    finally:
        await cleaned(world)


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["no Secret", "probe of another port", "no claim"])
async def test_a_list_of_sets_names_the_same_cause_as_explain(world: World, name: str) -> None:
    situation = BROKEN[name]
    await situation.act(world)
    world.nodes.hold = lambda pod: pod.metadata.name.startswith("chat-")
    await world.apply(world.system("other", cliques=[server("worker", 1, 1)]))

    async def is_said() -> bool:
        rows = {row.name: row for row in (await status_answer(world.client, world.namespace, "", world.now)).data}
        return bool(re.match(situation.sentence, rows["chat"].why)) and rows["other"].state == "running"

    await world.cluster.eventually(is_said)
    async with following(world.client, world.namespace) as source:
        [chat, _] = (await source.judged(source.seen())).sets
        assert re.match(situation.sentence, chat.reason), "top and --watch"
