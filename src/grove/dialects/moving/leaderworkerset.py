"""LeaderWorkerSet (`leaderworkerset.x-k8s.io/v1`): each group becomes a replica of the set, a leader and workers.

A group is a gang of its own there and a replica is one here. The variables that its programs read are given on, made
from ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from grove.api import env
from grove.api.fields import integer, mapping, sequence, text
from grove.api.meta import Json
from grove.dialects.moving.moved import Moved, clique, has_no_counterpart, moved_set, without_keys

GROUP, KIND = "leaderworkerset.x-k8s.io", "LeaderWorkerSet"
LEADER, WORKER = "leader", "worker"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
_PREFIX = "leaderworkerset.sigs.k8s.io/"
_WHY = {
    "networkConfig": "every replica has a headless Service of its own",
    "resizePolicy": "a clique is scaled by its replicas",
    "volumeClaimTemplates": "pods name claims that exist",
    "subGroupPolicy": "split the workers into several cliques, each with a topologyConstraint",
}


def to_set(obj: Json) -> Moved:
    spec = mapping(obj.get("spec"))
    group = mapping(spec.get("leaderWorkerTemplate"))
    worker = without_keys(mapping(group.get("workerTemplate")), [_PREFIX])
    own = mapping(group.get("leaderTemplate"))
    leader = without_keys(own, [_PREFIX]) if own else worker
    size = integer(group.get("size")) or 1
    replicas = integer(spec.get("replicas"))
    waits = text(spec.get("startupPolicy")) == "LeaderReady"
    cliques = [clique(LEADER, _with_lws_variables(leader, size, leads=True), 1, 1)]
    if size > 1:
        workers = _with_lws_variables(worker, size, leads=False)
        cliques.append(clique(WORKER, workers, size - 1, size - 1, [LEADER] if waits else ()))
    update = _update(spec)
    name = text(mapping(obj.get("metadata")).get("name"))
    manifest, cut = moved_set(obj, name, cliques, replicas=1 if replicas is None else replicas, spec=update)
    manifest["metadata"].get("annotations", {}).pop(EXCLUSIVE, None)
    return Moved(manifest, (*cut, *_chosen(size, waits=waits, has_leader=bool(own))), tuple(_lost(obj, spec, group)))


def _with_lws_variables(template: Json, size: int, *, leads: bool) -> Json:
    """The pod template with the variables that a LeaderWorkerSet gives; a worker's own index is only known to ours."""
    address = f"$({env.PCS_NAME})-$({env.PCS_INDEX})-{LEADER}-0.$({env.HEADLESS_SERVICE})"
    given = [{"name": "LWS_LEADER_ADDRESS", "value": address}, {"name": "LWS_GROUP_SIZE", "value": str(size)}]
    if leads:
        given.append({"name": "LWS_WORKER_INDEX", "value": "0"})
    pod_spec = mapping(template.get("spec"))
    containers = [
        {**mapping(container), "env": [*given, *sequence(mapping(container).get("env"))]}
        for container in sequence(pod_spec.get("containers"))
    ]
    return {**template, "spec": {**pod_spec, "containers": containers}}


def _update(spec: Json) -> Json:
    rolling = mapping(mapping(spec.get("rolloutStrategy")).get("rollingUpdateConfiguration"))
    most = integer(rolling.get("maxUnavailable"))
    if most is None or most < 1:
        return {}
    return {"updateStrategy": {"type": "RollingRecreate", "rollingRecreate": {"maxUnavailable": most}}}


def _chosen(size: int, *, waits: bool, has_leader: bool) -> Iterator[str]:
    yield "every group is a replica of the set and a gang of its own; scale the set as the LeaderWorkerSet was scaled"
    if not has_leader:
        yield "there is no leaderTemplate, so the leader is made from workerTemplate"
    if waits:
        yield "startupPolicy LeaderReady: workers start after the leader is ready"
    if size > 1:
        yield "LWS_LEADER_ADDRESS and LWS_GROUP_SIZE are set; a worker's LWS_WORKER_INDEX is GROVE_PCLQ_POD_INDEX + 1"


def _lost(obj: Json, spec: Json, group: Json) -> Iterator[str]:
    rollout = mapping(spec.get("rolloutStrategy"))
    yield from has_no_counterpart(
        spec, "spec", ("replicas", "leaderWorkerTemplate", "startupPolicy", "rolloutStrategy"), _WHY
    )
    known = ("leaderTemplate", "workerTemplate", "size", "restartPolicy")
    yield from has_no_counterpart(group, "spec.leaderWorkerTemplate", known, _WHY)
    if text(group.get("restartPolicy")) in ("", "RecreateGroupOnPodRestart"):
        yield (
            "restartPolicy RecreateGroupOnPodRestart: a container is restarted in place here, and a gang whole when it "
            "stays below minAvailable for terminationDelay"
        )
    rolling = mapping(rollout.get("rollingUpdateConfiguration"))
    yield from has_no_counterpart(rolling, "spec.rolloutStrategy.rollingUpdateConfiguration", ("maxUnavailable",), {})
    if isinstance(rolling.get("maxUnavailable"), str):
        yield "maxUnavailable as a percentage: give a number in spec.updateStrategy.rollingRecreate"
    key = text(mapping(mapping(obj.get("metadata")).get("annotations")).get(EXCLUSIVE))
    if key:
        yield (
            f"{EXCLUSIVE} {key}: spec.template.topologyConstraint with a level of a ClusterTopologyBinding keeps "
            "a group in one domain; that no other group shares it cannot be said"
        )
