"""The chart for workloads: every file of values renders objects that are admitted, and a set that comes up whole."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.reviews import binding, faults
from tests.support.sample_admission import ADMISSION, WELL_KNOWN

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.admission.rules.lookups import Known
from grove.admission.rules.startorder import start_order_notes
from grove.admission.rules.view import SetView
from grove.api.meta import Json
from grove.demo.simulation import Ground, simulate
from grove.plan.world import shaped
from grove.sim.loop import run

CHART = Path(__file__).parents[3] / "charts" / "inference"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
VALUES = sorted((CHART / "values").glob("*.yaml"))
GANGS = {
    "aggregated": 1,
    "aggregated-multi-node": 2,
    "agentic": 1,
    "disaggregated": 2,
    "mpi": 1,
    "every-option": 1,
    "vllm": 1,
    "vllm-multi-node": 2,
    "vllm-disaggregated": 2,
    "sglang-disaggregated": 2,
    "trtllm-multi-node": 1,
    "dynamo-disaggregated": 2,
    "llamacpp-rpc": 1,
    "vllm-gateway": 2,
    "own-engine": 2,
}
ORDER = {
    "vllm-multi-node": {"engine-worker": (["engine-leader"], "Started")},
    "trtllm-multi-node": {"engine-leader": (["engine-worker"], None)},
    "llamacpp-rpc": {"engine-leader": (["engine-worker"], None)},
    "sglang-disaggregated": {
        "prefill-worker": (["prefill-leader"], "Started"),
        "decode-worker": (["decode-leader"], "Started"),
        "router": (["prefill-leader", "decode-leader"], None),
    },
    "dynamo-disaggregated": {"router": (["prefill", "decode"], None)},
    "vllm": {},
    "own-engine": {"engine-worker": (["engine-leader"], "Started")},
}
"""Which part starts after which, and what is waited for if that is not Ready."""


def rendered(name: str) -> dict[str, Json]:
    """The objects of an example by kind; the last of a kind."""
    text = (CHART / "examples" / f"{name}.yaml").read_text()
    return {one["kind"]: one for one in yaml.safe_load_all(text) if one}


def all_of(kind: str, name: str) -> dict[str, Json]:
    """The objects of a kind in an example, by name."""
    objects = yaml.safe_load_all((CHART / "examples" / f"{name}.yaml").read_text())
    return {obj["metadata"]["name"]: obj for obj in objects if obj and obj["kind"] == kind}


def cliques(name: str) -> dict[str, Any]:
    return {one["name"]: one for one in rendered(name)["PodCliqueSet"]["spec"]["template"]["cliques"]}


def container(name: str, clique: str) -> Json:
    (found,) = cliques(name)[clique]["spec"]["podSpec"]["containers"]
    return dict(found)


def given_by_the_user(obj: Json) -> list[Json]:
    """The claims that the pods name: those of the sample of vLLM."""
    sample = yaml.safe_load_all((CHART.parents[1] / "samples/engines/vllm-multinode/manifest.yaml").read_text())
    claims = {
        one["metadata"]["name"]: one
        for one in sample
        if one["kind"] in ("PersistentVolumeClaim", "ResourceClaimTemplate")
    }
    return [claim for name, claim in claims.items() if f'"{name}"' in json.dumps(obj)]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_admitted_and_comes_up_whole(file: Path) -> None:
    obj = rendered(file.stem)["PodCliqueSet"]
    known = Known(topologies={"fake-nodes": binding("fake-nodes", **{one: f"example.com/{one}" for one in WELL_KNOWN})})
    full = with_additions(obj, missing_defaults(obj))
    assert faults(ADMISSION, full, lookups=known) == []
    assert list(start_order_notes(SetView(full))) == [], "nothing may wait for each other"
    needed = [one for kind, one in rendered(file.stem).items() if kind in ("ServiceAccount", "PodCliqueSet")]
    needed += given_by_the_user(obj)
    outcome = run(simulate(Ground(tuple(shaped(32))), needed, None, seed=1, patience_s=600), seed=1)
    assert outcome.is_whole
    assert len(outcome.summary.gangs) == GANGS[file.stem]


def test_there_is_an_example_of_every_pattern_and_engine() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    given = [yaml.safe_load(file.read_text()) for file in VALUES]
    assert {one["pattern"] for one in given} == set(schema["pattern"]["enum"])
    assert {one.get("engine", "") for one in given} == set(schema["engine"]["enum"])
    assert {file.stem for file in EXAMPLES} == {file.stem for file in VALUES} == set(GANGS)


def test_the_examples_are_rendered_from_the_chart_as_it_is() -> None:
    parts = [CHART / name for name in ("Chart.yaml", "values.yaml", "values.schema.json")]
    parts += [*sorted((CHART / "templates").iterdir()), *VALUES]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:16]
    stale = [file.stem for file in EXAMPLES if f"(digest {digest})" not in file.read_text().splitlines()[0]]
    assert stale == [], "run `make charts`"


@pytest.mark.parametrize("name", ORDER)
def test_each_engine_has_the_start_order_that_it_can_use(name: str) -> None:
    specs = {clique: one["spec"] for clique, one in cliques(name).items()}
    found = {
        clique: (spec["startsAfter"], spec.get("startsAfterCondition"))
        for clique, spec in specs.items()
        if "startsAfter" in spec
    }
    assert found == ORDER[name]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_service_leads_to_pods_with_a_port_named_http(file: Path) -> None:
    objects, values = rendered(file.stem), yaml.safe_load((CHART / "values" / file.name).read_text())
    if values["pattern"] == "mpi":
        assert "Service" not in objects
        return
    services = [one for one in yaml.safe_load_all(file.read_text()) if one and one["kind"] == "Service"]
    (entry,) = (one["spec"]["selector"] for one in services if one["metadata"]["name"] == file.stem)
    assert entry["app.kubernetes.io/part-of"] == file.stem
    chosen = cliques(file.stem)[entry["grove.io/clique-name"]]
    ports = chosen["spec"]["podSpec"]["containers"][0].get("ports", [])
    if values.get("engine") and "registry.example.com/agent" not in str(values):
        assert "http" in {port["name"] for port in ports}


def test_an_engine_over_several_pods_finds_its_leader_by_groves_names() -> None:
    leader, worker = container("vllm-multi-node", "engine-leader"), container("vllm-multi-node", "engine-worker")
    host = "$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-engine-leader-0.$(GROVE_HEADLESS_SERVICE)"
    common = [
        "serve",
        "deepseek-ai/DeepSeek-R1",
        "--tensor-parallel-size",
        "8",
        "--pipeline-parallel-size",
        "2",
        "--nnodes",
        "2",
        "--master-addr",
        host,
        "--master-port",
        "29555",
    ]
    assert leader["command"] == ["vllm"]
    assert leader["args"] == [*common, "--host", "0.0.0.0", "--port", "8000", "--node-rank", "0"]
    assert worker["args"] == common
    assert "--node-rank $((GROVE_PCLQ_POD_INDEX + 1)) --headless" in worker["command"][2]
    assert [kind for kind in ("startupProbe", "readinessProbe", "livenessProbe") if kind in worker] == []
    for each in (leader, worker):
        assert each["resources"]["limits"] == {"nvidia.com/gpu": 8, "memory": "512Gi"}
        assert each["resources"]["claims"] == [{"name": "nics"}]
        assert each["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "HF_TOKEN"} <= {
            one["name"] for one in each["env"]
        }
        assert {one["name"]: one["mountPath"] for one in each["volumeMounts"]} == {
            "shm": "/dev/shm",
            "models": "/models",
        }
    for clique in ("engine-leader", "engine-worker"):
        pod = cliques("vllm-multi-node")[clique]["spec"]["podSpec"]
        assert pod["resourceClaims"] == [{"name": "nics", "resourceClaimTemplateName": "vllm-nics"}]
        assert {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": False}} in pod["volumes"]


def test_an_engine_of_your_own_has_your_commands_and_a_service_for_its_leaders() -> None:
    leader, worker = container("own-engine", "engine-leader"), container("own-engine", "engine-worker")
    assert leader["command"] == ["serve", "--rank=0", "--nodes=3", "--port=8000"]
    assert "args" not in leader
    assert {"startupProbe", "readinessProbe"} <= set(leader)
    host = "$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-engine-leader-0.$(GROVE_HEADLESS_SERVICE)"
    assert worker["env"] == [{"name": "LEADER", "value": host}]
    service = rendered("own-engine")["Service"]["spec"]
    assert service["selector"]["grove.io/clique-name"] == "engine-leader"
    assert [port["targetPort"] for port in service["ports"]] == [port["name"] for port in leader["ports"]]


def after(args: list[str], option: str) -> str:
    return args[args.index(option) + 1]


def test_a_dynamo_engine_uses_all_gpus_of_its_pod_and_hands_over_its_cache() -> None:
    for part, gpus in (("prefill", "2"), ("decode", "4")):
        engine = container("dynamo-disaggregated", part)
        assert engine["command"] == ["python3", "-m", "dynamo.vllm"]
        assert engine["resources"]["limits"] == {"nvidia.com/gpu": int(gpus)}
        assert after(engine["args"], "--tensor-parallel-size") == gpus
        assert after(engine["args"], "--disaggregation-mode") == part
        transfer = json.loads(after(engine["args"], "--kv-transfer-config"))
        assert transfer == {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


@pytest.mark.parametrize("part", ["prefill", "decode"])
def test_the_heads_of_the_model_are_divisible_by_the_ranks_of_sglang(part: str) -> None:
    values = yaml.safe_load((CHART / "values" / "sglang-disaggregated.yaml").read_text())["disaggregated"][part]
    ranks = values["gpus"] * (values["workers"] + 1)
    assert after(container("sglang-disaggregated", f"{part}-leader")["args"], "--tp-size") == str(ranks)
    assert 128 % ranks == 0, "DeepSeek-R1 has 128 attention heads"


def test_mpirun_passes_the_environment_to_the_ranks_of_other_pods() -> None:
    args = container("trtllm-multi-node", "engine-leader")["args"]
    passed = [args[index + 1] for index, word in enumerate(args) if word == "-x"]
    assert passed == ["NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "HF_HOME", "HF_TOKEN"]
    assert max(index for index, word in enumerate(args) if word == "-x") < args.index("trtllm-llmapi-launch")
    assert "mkdir -p /run/sshd && exec /usr/sbin/sshd" in container("trtllm-multi-node", "engine-worker")["command"][2]


def test_llama_cpp_drains_and_its_workers_outlive_their_leader() -> None:
    annotations = rendered("llamacpp-rpc")["PodCliqueSet"]["metadata"]["annotations"]
    assert annotations["grove.io/drain-seconds"] == "25"
    pauses = [
        container("llamacpp-rpc", f"engine-{part}")["lifecycle"]["preStop"]["sleep"]["seconds"]
        for part in ("leader", "worker")
    ]
    assert pauses == [25, 35]
    assert cliques("llamacpp-rpc")["engine-worker"]["spec"]["podSpec"]["terminationGracePeriodSeconds"] == 60


def test_llama_server_computes_with_the_workers_of_its_own_instance() -> None:
    args = container("llamacpp-rpc", "engine-leader")["args"]
    workers = args[args.index("--rpc") + 1].split(",")
    own = "$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-engine-worker-{}.$(GROVE_HEADLESS_SERVICE):50052"
    assert workers == [own.format(0), own.format(1)]
    worker = container("llamacpp-rpc", "engine-worker")
    assert "readinessProbe" not in worker, "rpc-server serves one connection at a time, which the leader has"
    assert worker["startupProbe"]["tcpSocket"] == {"port": "rpc"}


def test_what_is_given_reaches_the_pods() -> None:
    engine, router = container("every-option", "engine"), container("every-option", "router")
    pod = cliques("every-option")["engine"]["spec"]["podSpec"]
    assert [one["name"] for one in engine["env"]] == ["A", "B", "HF_HOME", "HF_TOKEN"]
    assert engine["envFrom"] == [{"secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]
    assert engine["args"][-2:] == ["--mem-fraction-static", "0.8"]
    assert engine["resources"] == {
        "requests": {"cpu": "4", "memory": "16Gi"},
        "limits": {"memory": "32Gi", "nvidia.com/gpu": 2},
        "claims": [{"name": "nics"}],
    }
    assert pod["resourceClaims"] == [{"name": "nics", "resourceClaimTemplateName": "vllm-nics"}]
    assert "resourceClaims" not in cliques("every-option")["router"]["spec"]["podSpec"], "a router has no network cards"
    models = next(one for one in pod["volumes"] if one["name"] == "models")
    assert models["hostPath"]["type"] == "DirectoryOrCreate"
    assert {"name": "HF_HOME", "value": "/models"} in engine["env"], "downloads go to the volume of the models"
    mounts = {one["name"]: one["mountPath"] for one in engine["volumeMounts"]}
    assert mounts == {"scratch": "/tmp", "memory": "/dev/shm", "models": "/models"}, "its own mount replaces shmSize"
    assert {one["name"] for one in pod["volumes"]} == set(mounts)
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert "serviceAccountName" not in pod, "only the router reads the API server"
    router_pod = cliques("every-option")["router"]["spec"]["podSpec"]
    assert router_pod["serviceAccountName"] == "every-option-discovery"
    assert "livenessProbe" in engine
    assert "livenessProbe" not in router, "{} takes a probe away"
    assert "readinessProbe" in router


def test_the_budget_of_an_update_reaches_cliques_and_scaling_groups() -> None:
    found = cliques("every-option")
    assert found["engine"]["rollingUpdate"] == {"maxSurge": 2, "maxUnavailable": 1}
    assert found["router"]["rollingUpdate"] == {"maxSurge": 1}
    (group,) = rendered("llamacpp-rpc")["PodCliqueSet"]["spec"]["template"]["podCliqueScalingGroups"]
    assert group["rollingUpdate"] == {"maxSurge": 1}
    assert all("rollingUpdate" not in clique for clique in cliques("llamacpp-rpc").values()), "the group has it"


def test_what_stands_beside_the_set() -> None:
    objects = rendered("every-option")
    assert objects["Ingress"]["spec"]["rules"][0]["http"]["paths"][0]["path"] == "/v1"
    assert objects["HTTPRoute"]["spec"]["rules"][0]["backendRefs"] == [{"name": "every-option", "port": 8080}]
    assert objects["PodDisruptionBudget"]["spec"]["minAvailable"] == "50%"
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]["grove.io/clique-name"] == "router"
    strategy = objects["PodCliqueSet"]["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingRecreate", "rollingRecreate": {"maxUnavailable": 2}}


@pytest.mark.parametrize(
    ("name", "part", "size"),
    [
        pytest.param("vllm", "engine", "16Gi", id="vLLM: the preset"),
        pytest.param("dynamo-disaggregated", "prefill", "16Gi", id="Dynamo: the preset"),
        pytest.param("dynamo-disaggregated", "router", None, id="a router has no GPUs"),
        pytest.param("trtllm-multi-node", "engine-worker", "64Gi", id="a size that is given"),
        pytest.param("llamacpp-rpc", "engine-worker", None, id="llama.cpp needs none"),
    ],
)
def test_an_engine_with_gpus_has_shared_memory_without_a_setting(name: str, part: str, size: str | None) -> None:
    volumes = {volume["name"]: volume for volume in cliques(name)[part]["spec"]["podSpec"].get("volumes", ())}
    assert (volumes["shm"]["emptyDir"]["sizeLimit"] if "shm" in volumes else None) == size
    mounts = {mount["name"]: mount["mountPath"] for mount in container(name, part).get("volumeMounts", ())}
    assert mounts.get("shm") == (None if size is None else "/dev/shm")


def test_fields_of_the_pod_spec_reach_every_pod_and_a_part_replaces_them() -> None:
    engine, router = (cliques("every-option")[part]["spec"]["podSpec"] for part in ("engine", "router"))
    assert (engine["runtimeClassName"], router["runtimeClassName"]) == ("nvidia", "runc")
    assert [container["name"] for container in engine["initContainers"]] == ["fetch"]
    assert router["initContainers"] == []


def test_podspec_takes_no_field_that_has_a_value_of_its_own() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    taken = set(schema["definitions"]["podSpec"]["propertyNames"]["not"]["enum"])
    template = (CHART / "templates" / "_clique.tpl").read_text()
    pod_fields = template.partition("podSpec:")[2]
    rendered_fields = set(re.findall(r"^      ([a-zA-Z]+):", pod_fields, re.MULTILINE))
    assert "containers" in rendered_fields
    assert taken == rendered_fields


@pytest.mark.parametrize("name", ["every-option", "dynamo-disaggregated", "llamacpp-rpc"])
def test_a_network_policy_lets_grove_read_the_metrics_of_engines(name: str) -> None:
    (rule,) = all_of("NetworkPolicy", name)[f"{name}-metrics"]["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "grove-system"}}}]
    (open_port,) = (port["port"] for port in rule["ports"])
    pages = engines_with_metrics(name)
    assert pages
    assert [ports[open_port] for ports, _ in pages] == [page for _, page in pages]


def test_a_pod_monitor_reads_the_metrics_of_engines_and_not_of_the_router() -> None:
    monitor = rendered("every-option")["PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "15s"}
    assert [(ports[endpoint["port"]], page) for ports, page in engines_with_metrics("every-option")] == [(30000, 30000)]
    (without,) = monitor["spec"]["selector"]["matchExpressions"]
    assert (without["key"], without["operator"], without["values"]) == ("grove.io/clique-name", "NotIn", ["router"])


def engines_with_metrics(name: str) -> list[tuple[dict[str, int], int]]:
    """Ports by name of each engine whose metrics Grove reads, and the port of its metrics."""
    return [
        (
            {port["name"]: port["containerPort"] for port in container(name, clique)["ports"]},
            int(spec["annotations"]["prometheus.io/port"]),
        )
        for clique, spec in cliques(name).items()
        if clique != "router" and "prometheus.io/port" in spec.get("annotations", {})
    ]


def test_an_inference_pool_holds_the_leader_of_each_instance() -> None:
    """One address for one instance: a worker of it answers no requests."""
    objects = rendered("vllm-gateway")
    (backend,) = objects["HTTPRoute"]["spec"]["rules"][0]["backendRefs"]
    pool = objects["InferencePool"]
    assert backend == {
        "group": "inference.networking.k8s.io",
        "kind": "InferencePool",
        "name": pool["metadata"]["name"],
    }
    chosen = pool["spec"]["selector"]["matchLabels"]
    assert chosen == {"app.kubernetes.io/part-of": "vllm-gateway", "grove.io/clique-name": "engine-leader"}
    leader = container("vllm-gateway", "engine-leader")
    assert cliques("vllm-gateway")["engine-leader"]["spec"]["replicas"] == 1
    assert pool["spec"]["targetPorts"] == [{"number": leader["ports"][0]["containerPort"]}]
    assert pool["spec"]["endpointPickerRef"]["name"] == "endpoint-picker"


@pytest.mark.parametrize(
    ("name", "part", "metric"),
    [
        pytest.param("vllm", "engine", "grove_requests_waiting", id="requests that wait"),
        pytest.param("sglang-disaggregated", "decode", "grove_kv_cache_usage", id="decode by its cache"),
        pytest.param("dynamo-disaggregated", "prefill", "dynamo_component_inflight_requests", id="Dynamo's own"),
        pytest.param("trtllm-multi-node", "engine", "grove_ttft_p95_seconds", id="TensorRT-LLM tells latencies only"),
        pytest.param("every-option", "engine", "grove_ttft_p95_seconds", id="a metric that is given"),
    ],
)
def test_autoscaling_by_the_numbers_of_the_engine(name: str, part: str, metric: str) -> None:
    template = rendered(name)["PodCliqueSet"]["spec"]["template"]
    groups = {one["name"]: one.get("scaleConfig") for one in template.get("podCliqueScalingGroups", ())}
    scaling = groups.get(part) or cliques(name)[part]["spec"]["autoScalingConfig"]
    assert scaling["metrics"][0]["object"]["metric"]["name"] == metric
    assert scaling["metrics"][0]["object"]["describedObject"]["name"] == "self"


def test_every_value_is_in_the_schema_with_a_description_and_none_else_is_taken() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert set(values) == set(schema["properties"]) - {"global"}
    bare = [name for name, one in schema["properties"].items() if name != "global" and not one.get("description")]
    assert bare == []
    for name, one in schema["properties"].items():
        if "properties" in one and name not in ("router", "aggregated"):
            assert one["additionalProperties"] is False
            assert [key for key, inner in one["properties"].items() if not {"description", "$ref"} & set(inner)] == []
