"""Pod templates that would fail when pods are made: admission says so when the set is applied."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from tests.support.manifests import clique, pcs
from tests.support.reviews import ABSENT, changed, faults

from grove.admission.rules.containers import container_faults
from grove.admission.rules.podspec import pod_spec_faults
from grove.admission.rules.review import Admission
from grove.api.faults import Fault

ADMISSION = Admission()
P = "spec.template.cliques[0].spec.podSpec"
CONTAINER = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
ENV_RULE = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is "
    "'[-._a-zA-Z][-._a-zA-Z0-9]*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def set_with_pod_spec(**fields: object) -> dict:
    return pcs("demo", clique("a", **fields))


def container(**fields: object) -> dict:
    return set_with_pod_spec(containers=[{**CONTAINER, **fields}])


def gpus(limit: object = ABSENT, request: object = ABSENT) -> dict:
    resources = {}
    if limit is not ABSENT:
        resources["limits"] = {"nvidia.com/gpu": limit}
    if request is not ABSENT:
        resources["requests"] = {"nvidia.com/gpu": request}
    return container(resources=resources)


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(
            set_with_pod_spec(nodeName="n1"),
            [f'{P}.nodeName: Invalid value: "n1": must not be set: the scheduler chooses nodes for the whole gang'],
            id="nodeName",
        ),
        pytest.param(
            set_with_pod_spec(
                topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
            ),
            [
                f"{P}.topologySpreadConstraints: Invalid value: "
                '[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]: must not be set: '
                "use topologyConstraint"
            ],
            id="topologySpreadConstraints",
        ),
        pytest.param(
            container(env=[{"name": "1BAD", "value": "x"}]),
            [f'{P}.containers[0].env[0].name: Invalid value: "1BAD": {ENV_RULE}'],
            id="a variable's name",
        ),
        pytest.param(
            set_with_pod_spec(initContainers=[{**CONTAINER, "name": "init", "env": [{"name": "A B"}]}]),
            [f'{P}.initContainers[0].env[0].name: Invalid value: "A B": {ENV_RULE}'],
            id="a variable's name in an init container",
        ),
        pytest.param(
            container(env=[{"name": "A"}, {"name": "B"}, {"name": "A"}]),
            [f'{P}.containers[0].env[2]: Duplicate value: {{"name":"A"}}'],
            id="a variable twice",
        ),
        pytest.param(
            set_with_pod_spec(initContainers=[{**CONTAINER, "name": "init", "env": [{"name": "A"}, {"name": "A"}]}]),
            [f'{P}.initContainers[0].env[1]: Duplicate value: {{"name":"A"}}'],
            id="a variable twice in an init container",
        ),
        pytest.param(
            set_with_pod_spec(containers=[]),
            [f"{P}.containers: Required value: at least one container is required"],
            id="no container",
        ),
        pytest.param(
            set_with_pod_spec(containers=[{"name": "main"}]),
            [f"{P}.containers[0].image: Required value"],
            id="no image",
        ),
        pytest.param(
            container(name="Main"),
            [f'{P}.containers[0].name: Invalid value: "Main": {LABEL_RULE}'],
            id="a container's name",
        ),
        pytest.param(
            set_with_pod_spec(containers=[CONTAINER, CONTAINER]),
            [f'{P}.containers[1]: Duplicate value: {{"name":"main"}}'],
            id="two containers of one name",
        ),
        pytest.param(
            set_with_pod_spec(initContainers=[CONTAINER]),
            [f'{P}.containers[0].name: Duplicate value: "main": names are unique among all containers of a pod'],
            id="an init container of the same name",
        ),
        pytest.param(
            container(imagePullPolicy="Sometimes"),
            [
                f'{P}.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", '
                '"IfNotPresent", "Never"'
            ],
            id="an unknown pull policy",
        ),
        pytest.param(
            set_with_pod_spec(restartPolicy="Maybe"),
            [f'{P}.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"'],
            id="an unknown restart policy",
        ),
        pytest.param(
            set_with_pod_spec(terminationGracePeriodSeconds=-1),
            [f"{P}.terminationGracePeriodSeconds: Invalid value: -1: must not be negative"],
            id="a negative grace period",
        ),
        pytest.param(
            set_with_pod_spec(activeDeadlineSeconds=0),
            [f"{P}.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
            id="a deadline of nothing",
        ),
        pytest.param(
            container(ports=[{"containerPort": 70000}]),
            [f"{P}.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
            id="a port out of range",
        ),
        pytest.param(
            container(ports=[{"containerPort": 80, "name": "web-server-metrics"}]),
            [
                f'{P}.containers[0].ports[0].name: Invalid value: "web-server-metrics": must be no more than '
                "15 characters"
            ],
            id="a port's name",
        ),
        pytest.param(
            container(volumeMounts=[{"name": "models", "mountPath": "/models"}]),
            [f'{P}.containers[0].volumeMounts[0].name: Not found: "models": no such volume in the template'],
            id="a mount of no volume",
        ),
        pytest.param(
            set_with_pod_spec(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
            [f"{P}.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type, there is emptyDir already"],
            id="a volume of two types",
        ),
        pytest.param(
            set_with_pod_spec(volumes=[{"name": "v"}]),
            [f"{P}.volumes[0]: Required value: must specify a volume type"],
            id="a volume of no type",
        ),
        pytest.param(
            container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            [f'{P}.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="a request above its limit",
        ),
        pytest.param(
            gpus(limit="8", request="4"),
            [f'{P}.containers[0].resources.requests: Invalid value: "4": must be equal to nvidia.com/gpu limit of 8'],
            id="devices are not overcommitted",
        ),
        pytest.param(
            gpus(request="4"),
            [
                f"{P}.containers[0].resources.limits: Required value: limit must be set for nvidia.com/gpu, which "
                "cannot be overcommitted"
            ],
            id="devices need a limit",
        ),
        pytest.param(
            gpus(limit="500m"),
            [f'{P}.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer'],
            id="half a device",
        ),
        pytest.param(
            container(resources={"requests": {"kubernetes.io/batch-cpu": "1000"}}), [], id="Koordinator's need no limit"
        ),
        pytest.param(
            container(
                resources={
                    "requests": {"kubernetes.io/batch-cpu": "500", "node.kubernetes.io/slots": "500m"},
                    "limits": {"kubernetes.io/batch-cpu": "1k", "node.kubernetes.io/slots": "1"},
                }
            ),
            [],
            id="resources of Kubernetes' own name are overcommitted, and divided",
        ),
        pytest.param(
            container(
                resources={
                    "requests": {"kubernetes.io/batch-cpu": "2k"},
                    "limits": {"kubernetes.io/batch-cpu": "1k"},
                }
            ),
            [
                f'{P}.containers[0].resources.requests: Invalid value: "2k": must be less than or equal to '
                "kubernetes.io/batch-cpu limit of 1k"
            ],
            id="but not requested beyond their limit",
        ),
        pytest.param(
            container(resources={"requests": {"hugepages-2Mi": "4Mi", "cpu": "1"}}),
            [
                f"{P}.containers[0].resources.limits: Required value: limit must be set for hugepages-2Mi, which "
                "cannot be overcommitted"
            ],
            id="huge pages need a limit",
        ),
        pytest.param(
            container(resources={"limits": {"gpu": "1"}}),
            [
                f'{P}.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or '
                "fully qualified, such as nvidia.com/gpu"
            ],
            id="a resource nobody knows",
        ),
        pytest.param(
            container(resources={"claims": [{"name": "gpu"}]}),
            [
                f'{P}.containers[0].resources.claims[0].name: Not found: "gpu": no such claim in the template\'s '
                "resourceClaims"
            ],
            id="a claim that is not there",
        ),
        pytest.param(
            container(livenessProbe={"periodSeconds": 5}),
            [f"{P}.containers[0].livenessProbe: Required value: must specify a handler type"],
            id="a probe of nothing",
        ),
        pytest.param(
            set_with_pod_spec(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            [f"{P}.tolerations[0].value: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"],
            id="a toleration that contradicts itself",
        ),
        pytest.param(
            set_with_pod_spec(
                affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
            ),
            [
                f"{P}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: "
                "Required value: must have at least one node selector term"
            ],
            id="an affinity to nothing",
        ),
        pytest.param(
            set_with_pod_spec(ephemeralContainers=[{"name": "debug", "image": "busybox"}]),
            [f"{P}.ephemeralContainers: Forbidden: ephemeral containers are added to running pods, not to templates"],
            id="ephemeral containers",
        ),
        pytest.param(
            container(tty="yes"),
            [f'{P}.containers[0].tty: Invalid value: "string": must be of type boolean: "string"'],
            id="a type the schema does not allow",
        ),
        pytest.param(
            container(ports=[{"name": "web"}]),
            [f"{P}.containers[0].ports[0].containerPort: Required value"],
            id="what is missing is told once",
        ),
        pytest.param(
            container(resources={"limits": {"cpu": "lots"}}),
            [
                f'{P}.containers[0].resources.limits[cpu]: Invalid value: "lots": '
                f"{P}.containers[0].resources.limits[cpu] in body should match "
                "'^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)"
                "|(\\.[0-9]+))))?$'"
            ],
            id="a quantity that is none",
        ),
        pytest.param(
            container(
                env=[{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                ports=[{"containerPort": 8000, "name": "http"}, {"containerPort": 9000}],
                resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 8, "cpu": "2"}},
                readinessProbe={"httpGet": {"path": "/", "port": "http"}, "successThreshold": 2},
                lifecycle={"preStop": {"sleep": {"seconds": 5}}},
            ),
            [],
            id="a busy but sound container",
        ),
    ],
)
def test_a_pod_template(obj: dict, want: list[str]) -> None:
    assert faults(ADMISSION, obj) == want
    assert faults(ADMISSION, obj, set_with_pod_spec()) == want


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeName": "n1"},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_placement_once_let_in_stays_but_is_not_added(fields: dict) -> None:
    stored = set_with_pod_spec(**fields)
    assert faults(ADMISSION, changed(stored, ("spec.replicas", 9)), stored) == []
    assert len(faults(ADMISSION, stored, set_with_pod_spec())) == 1


LONG = "must be no more than 63 characters"
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def container_fault(**fields: object) -> list[str]:
    """What is said of a container with these fields by the rules alone, without the schema, below its path."""
    return told(container_faults("c", {**CONTAINER, **fields}, {"data"}, {"gpu"}, is_init=False))


def pod_fault(**fields: object) -> list[str]:
    return told(pod_spec_faults("p", {"containers": [CONTAINER], **fields}))


def told(found: Iterable[Fault]) -> list[str]:
    return [str(one) for one in found]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(container_fault(image=" a"), "c.image: .*whitespace", id="an image that begins with a space"),
        pytest.param(container_fault(env=[{"value": "x"}]), r"c.env\[0\].name: Required", id="a variable of no name"),
        pytest.param(
            container_fault(env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {}}}]),
            r"c.env\[0\].valueFrom: .*not be specified when `value`",
            id="a variable with value and source",
        ),
        pytest.param(
            container_fault(env=[{"name": "A", "valueFrom": {"fieldRef": {}, "secretKeyRef": {}}}]),
            r"c.env\[0\].valueFrom: .*exactly one source",
            id="a variable of two sources",
        ),
        pytest.param(
            container_fault(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]),
            r"c.ports\[1\].name: Duplicate",
            id="two ports of one name",
        ),
        pytest.param(container_fault(ports=[{"containerPort": 0}]), "containerPort: Required", id="port zero"),
        pytest.param(
            container_fault(ports=[{"containerPort": 1, "hostPort": 70000}]),
            "hostPort: .*65535",
            id="a host port too high",
        ),
        pytest.param(
            container_fault(ports=[{"containerPort": 1, "protocol": "ICMP"}]), "protocol: Unsupported", id="a protocol"
        ),
        pytest.param(
            container_fault(ports=[{"containerPort": 1, "name": "a--b"}]), "name: .*two in a row", id="a port's name"
        ),
        pytest.param(
            container_fault(volumeMounts=[{"mountPath": "/d"}]), r"\[0\].name: Required", id="a mount of nothing"
        ),
        pytest.param(container_fault(volumeMounts=[{"name": "data"}]), "mountPath: Required", id="a mount to nowhere"),
        pytest.param(
            container_fault(resources={"limits": {"nvidia.com/": 1}}),
            "name part must be non-empty",
            id="half a resource",
        ),
        pytest.param(
            container_fault(resources={"limits": {"a.b/c/d": 1}}), "optional DNS subdomain prefix", id="two slashes"
        ),
        pytest.param(
            container_fault(resources={"limits": {"/gpu": 1}}), "prefix part must be non-empty", id="no prefix"
        ),
        pytest.param(
            container_fault(resources={"limits": {"cpu": True}}), "must be a quantity", id="true is no quantity"
        ),
        pytest.param(container_fault(resources={"requests": {"cpu": "lots"}}), "must be a quantity", id="nor is lots"),
        pytest.param(
            container_fault(resources={"limits": {"cpu": -1}}), "greater than or equal to 0", id="less than none"
        ),
        pytest.param(
            container_fault(livenessProbe={"exec": {}, "periodSeconds": -1}),
            "periodSeconds: .*or equal to 0",
            id="a period",
        ),
        pytest.param(
            container_fault(livenessProbe={"exec": {}, "successThreshold": 2}),
            "successThreshold: .*must be 1",
            id="a liveness probe that must succeed twice",
        ),
        pytest.param(
            container_fault(readinessProbe={"exec": {}, "grpc": {}}), "more than 1 handler", id="a probe of two kinds"
        ),
        pytest.param(
            pod_fault(initContainers=[{**CONTAINER, "name": "i", "livenessProbe": {"exec": {}}}]),
            "must not be set for init containers",
            id="a probe of an init container that ends",
        ),
        pytest.param(pod_fault(serviceAccountName="A_B"), "p.serviceAccountName: ", id="an account's name"),
        pytest.param(pod_fault(runtimeClassName="a" * 254), "no more than 253", id="a runtime class with a long name"),
        pytest.param(pod_fault(containers=[{"image": "a"}]), r"containers\[0\].name: Required", id="no name"),
        pytest.param(pod_fault(containers=[{"image": "a", "name": "a" * 64}]), LONG, id="a long name"),
        pytest.param(pod_fault(nodeSelector={"a": "b" * 64}), LONG, id="a node selector's long value"),
        pytest.param(pod_fault(volumes=[{"emptyDir": {}}]), r"volumes\[0\].name: Required", id="a volume of no name"),
        pytest.param(
            pod_fault(volumes=[{"name": "A", "emptyDir": {}}]), r"volumes\[0\].name: Invalid", id="a volume's name"
        ),
        pytest.param(
            pod_fault(resourceClaims=[{"name": "G", "resourceClaimName": "x"}]),
            r"Claims\[0\].name: Invalid",
            id="a claim's name",
        ),
        pytest.param(pod_fault(resourceClaims=[{"name": "g"}]), "must specify one of", id="a claim of nothing"),
        pytest.param(
            pod_fault(tolerations=[{"key": "a/b/c", "operator": "Exists"}]),
            r"tolerations\[0\].key: ",
            id="a taint's key",
        ),
        pytest.param(
            pod_fault(tolerations=[{"key": "a", "value": "-"}]), r"tolerations\[0\].value: ", id="a taint's value"
        ),
        pytest.param(
            pod_fault(tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]),
            "effect must be 'NoExecute'",
            id="seconds without an effect",
        ),
        pytest.param(
            pod_fault(affinity={"podAntiAffinity": {HARD: [{}]}}),
            "topologyKey: Required",
            id="apart from others, but where",
        ),
        pytest.param(
            pod_fault(affinity={"podAffinity": {HARD: [{"topologyKey": "a b"}]}}),
            "topologyKey: Invalid",
            id="a bad key",
        ),
        pytest.param(
            pod_fault(affinity={"nodeAffinity": {SOFT: [{"weight": 101}]}}),
            r"\[0\].weight: .*1-100",
            id="a weight of 101",
        ),
    ],
)
def test_the_rules_refuse_what_the_schema_may_let_through(found: list[str], want: str) -> None:
    assert len(found) == 1, found
    assert re.search(want, found[0]), found[0]


VOLUME = {"name": "sa-token-secret-vol", "emptyDir": {}}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        pytest.param(
            {"initContainers": [{**CONTAINER, "name": "grove-initc"}]}, "initContainers", id="an init container"
        ),
        pytest.param({"containers": [{**CONTAINER, "name": "grove-initc"}]}, "containers", id="a container"),
        pytest.param({"volumes": [VOLUME]}, "volumes", id="the volume of the token"),
        pytest.param({"volumes": [{**VOLUME, "name": "pod-info-vol"}]}, "volumes", id="the volume of pod info"),
    ],
)
def test_names_of_what_grove_adds_to_pods_are_reserved(fields: dict, path: str) -> None:
    obj = set_with_pod_spec(**fields)
    (told,) = faults(ADMISSION, obj)
    assert told.startswith(f"{P}.{path}[0].name: Invalid value: ")
    assert "reserved: Grove adds it" in told
    assert faults(ADMISSION, changed(obj, ("spec.replicas", 7)), obj) == [], "what is stored stays editable"
