"""What kube-scheduler answers: nodes, running pods, one pod, and the nodes it may be bound to. Plain JSON.

The same rows can be put before a real kube-scheduler: nothing here is about Grove.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Json = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


class Row(NamedTuple):
    name: str
    nodes: list[Json]
    pod: Json
    want: str
    """Names of the feasible nodes, in order, separated by blanks."""
    running: list[Json] = []
    namespaces: dict[str, dict[str, str]] = {}


def node(
    name: str,
    labels: Json | None = None,
    *,
    taints: list[Json] | None = None,
    cordoned: bool = False,
    **allocatable: Any,
) -> Json:
    have = {
        "cpu": "4",
        "memory": "8Gi",
        "pods": "10",
        **{k.replace("__", "/").replace("_", "-"): v for k, v in allocatable.items()},
    }
    spec: Json = {"taints": taints or []}
    if cordoned:
        spec["unschedulable"] = True
    return {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": have, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def container(requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    return {"name": "main", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def pod(
    name: str = "pod",
    *containers: Json,
    on: str = "",
    labels: Json | None = None,
    namespace: str = "default",
    deleting: bool = False,
    **spec: Any,
) -> Json:
    meta: Json = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made = {"containers": list(containers) or [container()], **spec}
    if on:
        made["nodeName"] = on
    return {"metadata": meta, "spec": made, "status": {"phase": "Running" if on else "Pending"}}


def affinity(*terms: list[Json], fields: list[Json] | None = None) -> Json:
    found: list[Json] = [{"matchExpressions": term} for term in terms]
    if fields is not None:
        found.append({"matchFields": fields})
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}


def expr(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)} if values else {"key": key, "operator": operator}


def term(key: str, labels: Json | None = None, **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {}}, **more}


def near(*terms: Json) -> Json:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: Json) -> Json:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(
    key: str = ZONE, skew: int = 1, labels: Json | None = None, when: str = "DoNotSchedule", **more: Any
) -> list[Json]:
    return [
        {
            "topologyKey": key,
            "maxSkew": skew,
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": labels or {"app": "a"}},
            **more,
        }
    ]


def port(number: int, **more: Any) -> Json:
    return container(ports=[{"containerPort": number, "hostPort": number, **more}])


TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}
AB = [node("a", {"disk": "ssd", "gen": "4"}), node("b", {"disk": "hdd", "gen": "10"}), node("c")]
TAINTED = [node("a"), node("b", taints=[TAINT]), node("c", taints=[{**TAINT, "effect": "NoExecute"}])]
SOFT = [node("a"), node("b", taints=[{**TAINT, "effect": "PreferNoSchedule"}])]
ZONES = [node("a1", {ZONE: "a"}), node("a2", {ZONE: "a"}), node("b1", {ZONE: "b"}), node("x")]
APP = {"app": "a"}
IN_A = [pod("r", on="a1", labels=APP)]

SELECTORS = [
    Row("no selector fits anywhere", AB, pod(), "a b c"),
    Row("nodeSelector", AB, pod(nodeSelector={"disk": "ssd"}), "a"),
    Row("nodeSelector with two labels is an and", AB, pod(nodeSelector={"disk": "ssd", "gen": "10"}), ""),
    Row("nodeSelector with an unknown value", AB, pod(nodeSelector={"disk": "nvme"}), ""),
    Row("affinity In", AB, pod(affinity=affinity([expr("disk", "In", "ssd", "hdd")])), "a b"),
    Row("affinity NotIn holds without the label", AB, pod(affinity=affinity([expr("disk", "NotIn", "ssd")])), "b c"),
    Row("affinity Exists", AB, pod(affinity=affinity([expr("disk", "Exists")])), "a b"),
    Row("affinity DoesNotExist", AB, pod(affinity=affinity([expr("disk", "DoesNotExist")])), "c"),
    Row("affinity Gt compares numbers, not text", AB, pod(affinity=affinity([expr("gen", "Gt", "9")])), "b"),
    Row("affinity Lt needs the label", AB, pod(affinity=affinity([expr("gen", "Lt", "5")])), "a"),
    Row("affinity Gt of a word is false", AB, pod(affinity=affinity([expr("disk", "Gt", "1")])), ""),
    Row(
        "terms are alternatives",
        AB,
        pod(affinity=affinity([expr("disk", "In", "ssd")], [expr("disk", "DoesNotExist")])),
        "a c",
    ),
    Row(
        "expressions of a term are an and",
        AB,
        pod(affinity=affinity([expr("disk", "Exists"), expr("gen", "Gt", "9")])),
        "b",
    ),
    Row("an empty term matches nothing", AB, pod(affinity=affinity([])), ""),
    Row("matchFields by name", AB, pod(affinity=affinity(fields=[expr("metadata.name", "In", "b")])), "b"),
    Row("matchFields NotIn", AB, pod(affinity=affinity(fields=[expr("metadata.name", "NotIn", "b")])), "a c"),
    Row(
        "nodeSelector and affinity both hold",
        AB,
        pod(nodeSelector={"disk": "hdd"}, affinity=affinity([expr("gen", "Exists")])),
        "b",
    ),
    Row(
        "preferred affinity filters nothing",
        AB,
        pod(
            affinity={
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [expr("disk", "In", "ssd")]}}
                    ]
                }
            }
        ),
        "a b c",
    ),
]

TAINTS = [
    Row("hard taints repel", TAINTED, pod(), "a"),
    Row("PreferNoSchedule does not filter", SOFT, pod(), "a b"),
    Row(
        "toleration Equal",
        TAINTED,
        pod(tolerations=[{"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]),
        "a b",
    ),
    Row("toleration Equal with another value", TAINTED, pod(tolerations=[{"key": "team", "value": "y"}]), "a"),
    Row(
        "toleration without an effect covers all effects",
        TAINTED,
        pod(tolerations=[{"key": "team", "value": "x"}]),
        "a b c",
    ),
    Row(
        "toleration Exists",
        TAINTED,
        pod(tolerations=[{"key": "team", "operator": "Exists", "effect": "NoExecute"}]),
        "a c",
    ),
    Row(
        "toleration Exists without a key tolerates everything",
        TAINTED,
        pod(tolerations=[{"operator": "Exists"}]),
        "a b c",
    ),
    Row(
        "every taint must be tolerated",
        [node("a", taints=[TAINT, {"key": "k", "effect": "NoSchedule"}])],
        pod(tolerations=[{"key": "team", "operator": "Exists"}]),
        "",
    ),
    Row("a cordoned node repels", [node("a", cordoned=True), node("b")], pod(), "b"),
    Row(
        "a cordon can be tolerated",
        [node("a", cordoned=True)],
        pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        "a",
    ),
]

RESOURCES = [
    Row(
        "cpu and memory must fit",
        [node("a", cpu="1"), node("b", memory="1Gi"), node("c")],
        pod("p", container({"cpu": "2", "memory": "2Gi"})),
        "c",
    ),
    Row("an exact fit fits", [node("a", cpu="1500m")], pod("p", container({"cpu": "1.5"})), "a"),
    Row(
        "running pods count",
        [node("a"), node("b")],
        pod("p", container({"cpu": "3"})),
        "b",
        [pod("r", container({"cpu": "2"}), on="a")],
    ),
    Row(
        "finished pods do not",
        [node("a")],
        pod("p", container({"cpu": "3"})),
        "a",
        [{**pod("r", container({"cpu": "2"}), on="a"), "status": {"phase": "Succeeded"}}],
    ),
    Row(
        "terminating pods still do",
        [node("a")],
        pod("p", container({"cpu": "3"})),
        "",
        [pod("r", container({"cpu": "2"}), on="a", deleting=True)],
    ),
    Row(
        "extended resources",
        [node("a", nvidia_com__gpu="8"), node("b", nvidia_com__gpu="4"), node("c")],
        pod("p", container({"nvidia-com/gpu": "8"})),
        "a",
    ),
    Row(
        "a limit alone is a request",
        [node("a", nvidia_com__gpu="4")],
        pod("p", container(limits={"nvidia-com/gpu": "8"})),
        "",
    ),
    Row(
        "ephemeral storage",
        [node("a", ephemeral_storage="1Gi"), node("b", ephemeral_storage="9Gi")],
        pod("p", container({"ephemeral-storage": "2Gi"})),
        "b",
    ),
    Row(
        "hugepages",
        [node("a", hugepages_2Mi="4Mi"), node("b")],
        pod("p", container({"hugepages-2Mi": "4Mi", "memory": "1Gi"})),
        "a",
    ),
    Row("containers add up", [node("a")], pod("p", container({"cpu": "2"}), container({"cpu": "2500m"})), ""),
    Row(
        "the number of pods is limited",
        [node("a", pods="1"), node("b", pods="2")],
        pod(),
        "b",
        [pod("r1", on="a"), pod("r2", on="b")],
    ),
    Row(
        "a pod that asks for nothing fits a full node",
        [node("a", cpu="1")],
        pod(),
        "a",
        [pod("r", container({"cpu": "1"}), on="a")],
    ),
    Row(
        "init containers count by their maximum",
        [node("a", cpu="2")],
        pod("p", container({"cpu": "1"}), initContainers=[container({"cpu": "2"}), container({"cpu": "2"})]),
        "a",
    ),
    Row(
        "an init container may be the larger one",
        [node("a", cpu="2")],
        pod("p", container({"cpu": "1"}), initContainers=[container({"cpu": "3"})]),
        "",
    ),
    Row(
        "a sidecar adds to the containers",
        [node("a", cpu="2")],
        pod("p", container({"cpu": "1500m"}), initContainers=[container({"cpu": "1"}, restartPolicy="Always")]),
        "",
    ),
    Row(
        "a sidecar adds to later init containers",
        [node("a", cpu="3")],
        pod(
            "p",
            container({"cpu": "1"}),
            initContainers=[container({"cpu": "1"}, restartPolicy="Always"), container({"cpu": "2500m"})],
        ),
        "",
    ),
    Row(
        "a sidecar does not add to earlier init containers",
        [node("a", cpu="3")],
        pod(
            "p",
            container({"cpu": "1"}),
            initContainers=[container({"cpu": "2500m"}), container({"cpu": "1"}, restartPolicy="Always")],
        ),
        "a",
    ),
    Row(
        "overhead adds to everything",
        [node("a", cpu="2")],
        pod("p", container({"cpu": "1900m"}), overhead={"cpu": "200m"}),
        "",
    ),
    Row(
        "pod-level requests replace the sum",
        [node("a", cpu="1300m"), node("b", cpu="1500m")],
        pod("p", container({"cpu": "600m"}), container({"cpu": "600m"}), resources={"requests": {"cpu": "1500m"}}),
        "b",
    ),
    Row(
        "pod-level requests may be the larger ones",
        [node("a", cpu="2")],
        pod("p", container({"cpu": "1"}), resources={"requests": {"cpu": "3"}}),
        "",
    ),
    Row(
        "fractions are rounded up once, after adding",
        [node("a", memory="1")],
        pod("p", container({"memory": "400m"}), container({"memory": "400m"})),
        "a",
    ),
    Row("a resource the node does not have", [node("a")], pod("p", container({"example.com/fpga": "1"})), ""),
]

PORTS = [
    Row("a host port in use repels", [node("a"), node("b")], pod("p", port(80)), "b", [pod("r", port(80), on="a")]),
    Row("another port does not", [node("a")], pod("p", port(81)), "a", [pod("r", port(80), on="a")]),
    Row(
        "another protocol does not", [node("a")], pod("p", port(80, protocol="UDP")), "a", [pod("r", port(80), on="a")]
    ),
    Row(
        "different host addresses share a port",
        [node("a")],
        pod("p", port(80, hostIP="10.0.0.1")),
        "a",
        [pod("r", port(80, hostIP="10.0.0.2"), on="a")],
    ),
    Row(
        "all addresses clash with any",
        [node("a")],
        pod("p", port(80)),
        "",
        [pod("r", port(80, hostIP="10.0.0.2"), on="a")],
    ),
    Row(
        "the host network takes container ports",
        [node("a"), node("b")],
        pod("p", container(ports=[{"containerPort": 80}]), hostNetwork=True),
        "b",
        [pod("r", port(80), on="a")],
    ),
]

NEAR = [
    Row("affinity needs a matching pod in the zone", ZONES, pod("p", affinity=near(term(ZONE, APP))), "a1 a2", IN_A),
    Row("affinity by host", ZONES, pod("p", affinity=near(term(HOST, APP))), "a1", IN_A),
    Row("nobody matches", ZONES, pod("p", affinity=near(term(ZONE, {"app": "z"}))), "", IN_A),
    Row(
        "the first of a series may go anywhere with the label",
        ZONES,
        pod("p", labels=APP, affinity=near(term(ZONE, APP))),
        "a1 a2 b1",
    ),
    Row("the second of a series may not", ZONES, pod("p", labels=APP, affinity=near(term(ZONE, APP))), "a1 a2", IN_A),
    Row(
        "pods of other namespaces do not count",
        ZONES,
        pod("p", affinity=near(term(ZONE, APP))),
        "",
        [pod("r", on="a1", labels=APP, namespace="other")],
    ),
    Row(
        "unless the term names the namespace",
        ZONES,
        pod("p", affinity=near(term(ZONE, APP, namespaces=["other"]))),
        "a1 a2",
        [pod("r", on="a1", labels=APP, namespace="other")],
    ),
    Row(
        "or selects it",
        ZONES,
        pod("p", affinity=near(term(ZONE, APP, namespaceSelector={"matchLabels": {"team": "x"}}))),
        "a1 a2",
        [pod("r", on="a1", labels=APP, namespace="other")],
        {"other": {"team": "x"}, "default": {}},
    ),
    Row(
        "an empty namespace selector is all namespaces",
        ZONES,
        pod("p", affinity=near(term(ZONE, APP, namespaceSelector={}))),
        "a1 a2",
        [pod("r", on="a1", labels=APP, namespace="other")],
    ),
    Row(
        "one pod must match every term",
        ZONES,
        pod("p", affinity=near(term(ZONE, APP), term(ZONE, {"tier": "web"}))),
        "",
        [*IN_A, pod("s", on="a1", labels={"tier": "web"})],
    ),
    Row(
        "matchLabelKeys narrow to the pod's own value",
        ZONES,
        pod("p", labels={"rev": "2"}, affinity=near(term(ZONE, APP, matchLabelKeys=["rev"]))),
        "b1",
        [pod("r", on="a1", labels={**APP, "rev": "1"}), pod("s", on="b1", labels={**APP, "rev": "2"})],
    ),
    Row(
        "a terminating pod still counts",
        ZONES,
        pod("p", affinity=near(term(ZONE, APP))),
        "a1 a2",
        [pod("r", on="a1", labels=APP, deleting=True)],
    ),
]

APART = [
    Row("anti-affinity keeps out of the zone", ZONES, pod("p", affinity=apart(term(ZONE, APP))), "b1 x", IN_A),
    Row("anti-affinity by host", ZONES, pod("p", affinity=apart(term(HOST, APP))), "a2 b1 x", IN_A),
    Row(
        "running pods' anti-affinity counts as well",
        ZONES,
        pod("p", labels=APP),
        "b1 x",
        [pod("r", on="a1", affinity=apart(term(ZONE, APP)))],
    ),
    Row(
        "and does not concern others",
        ZONES,
        pod("p", labels={"app": "z"}),
        "a1 a2 b1 x",
        [pod("r", on="a1", affinity=apart(term(ZONE, APP)))],
    ),
    Row(
        "each anti-affinity term stands alone",
        ZONES,
        pod("p", affinity=apart(term(ZONE, APP), term(HOST, {"tier": "web"}))),
        "x",
        [*IN_A, pod("s", on="b1", labels={"tier": "web"})],
    ),
    Row(
        "mismatchLabelKeys leave the own value out",
        ZONES,
        pod("p", labels={"tenant": "me"}, affinity=apart(term(ZONE, {}, mismatchLabelKeys=["tenant"]))),
        "a1 a2 x",
        [pod("r", on="a1", labels={"tenant": "me"}), pod("s", on="b1", labels={"tenant": "you"})],
    ),
    Row(
        "preferred anti-affinity filters nothing",
        ZONES,
        pod(
            "p",
            affinity={
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 100, "podAffinityTerm": term(ZONE, APP)}
                    ]
                }
            },
        ),
        "a1 a2 b1 x",
        IN_A,
    ),
]

SPREAD = [
    Row("spread evens out zones", ZONES, pod("p", labels=APP, topologySpreadConstraints=spread()), "b1", IN_A),
    Row(
        "a larger skew allows more",
        ZONES,
        pod("p", labels=APP, topologySpreadConstraints=spread(skew=2)),
        "a1 a2 b1",
        IN_A,
    ),
    Row("nodes without the label are out", ZONES, pod("p", labels=APP, topologySpreadConstraints=spread()), "a1 a2 b1"),
    Row(
        "ScheduleAnyway filters nothing",
        ZONES,
        pod("p", labels=APP, topologySpreadConstraints=spread(when="ScheduleAnyway")),
        "a1 a2 b1 x",
        IN_A,
    ),
    Row(
        "a pod that does not match itself adds nothing",
        ZONES,
        pod("p", topologySpreadConstraints=spread()),
        "a1 a2 b1",
        IN_A,
    ),
    Row("spread by host", ZONES, pod("p", labels=APP, topologySpreadConstraints=spread(HOST)), "a2 b1 x", IN_A),
    Row(
        "terminating pods do not count",
        ZONES,
        pod("p", labels=APP, topologySpreadConstraints=spread()),
        "a1 a2 b1",
        [pod("r", on="a1", labels=APP, deleting=True)],
    ),
    Row(
        "pods of other namespaces do not count in a spread",
        ZONES,
        pod("p", labels=APP, topologySpreadConstraints=spread()),
        "a1 a2 b1",
        [pod("r", on="a1", labels=APP, namespace="other")],
    ),
    Row(
        "zones the pod cannot go to do not count",
        ZONES,
        pod("p", labels=APP, nodeSelector={ZONE: "a"}, topologySpreadConstraints=spread()),
        "a1 a2",
        IN_A,
    ),
    Row(
        "unless node affinity is to be ignored",
        ZONES,
        pod("p", labels=APP, nodeSelector={ZONE: "a"}, topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore")),
        "",
        IN_A,
    ),
    Row(
        "tainted nodes count by default",
        [*ZONES[:2], node("b1", {ZONE: "b"}, taints=[TAINT])],
        pod("p", labels=APP, topologySpreadConstraints=spread()),
        "",
        IN_A,
    ),
    Row(
        "and do not if taints are honoured",
        [*ZONES[:2], node("b1", {ZONE: "b"}, taints=[TAINT])],
        pod("p", labels=APP, topologySpreadConstraints=spread(nodeTaintsPolicy="Honor")),
        "a1 a2",
        IN_A,
    ),
    Row(
        "too few domains count as an empty one",
        ZONES,
        pod("p", labels=APP, topologySpreadConstraints=spread(minDomains=3)),
        "",
        [*IN_A, pod("s", on="b1", labels=APP)],
    ),
    Row(
        "matchLabelKeys count the own revision",
        ZONES,
        pod("p", labels={**APP, "rev": "2"}, topologySpreadConstraints=spread(matchLabelKeys=["rev"])),
        "a1 a2 b1",
        [pod("r", on="a1", labels={**APP, "rev": "1"})],
    ),
    Row(
        "all constraints hold",
        ZONES,
        pod("p", labels=APP, topologySpreadConstraints=[*spread(), *spread(HOST)]),
        "a2",
        [pod("r", on="a1", labels=APP), pod("s", on="b1", labels=APP), pod("t", on="b1", labels=APP)],
    ),
]

ROWS = [*SELECTORS, *TAINTS, *RESOURCES, *PORTS, *NEAR, *APART, *SPREAD]
