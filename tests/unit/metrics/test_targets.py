"""Where a pod's page of metrics is, and which addresses belong to no pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from grove.metrics.targets import EnginePod, Target, find_target


def engine_pod(
    image: str = "example/engine:1",
    ip: str = "10.0.0.7",
    phase: str = "Running",
    ports: Any = (),
    env: Any = (),
    **annotations: str,
) -> EnginePod:
    named = {f"prometheus.io/{name}": value for name, value in annotations.items()}
    container = {"image": image, "ports": list(ports), "env": list(env)}
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "annotations": named},
            "spec": {"containers": [container]},
            "status": {"phase": phase, "podIP": ip},
        },
        EnginePod,
    )


def page(port: int, path: str = "/metrics", scheme: str = "http", address: str = "10.0.0.7") -> Target:
    return Target("n", "p", address, port, path, scheme)


METRICS_PORT = {"name": "metrics", "containerPort": 9090}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(engine_pod(), None, id="nothing says where"),
        pytest.param(engine_pod(port="9000"), page(9000), id="an annotation names the port"),
        pytest.param(
            engine_pod(port="9000", path="/m", scheme="https"), page(9000, "/m", "https"), id="and path and scheme"
        ),
        pytest.param(engine_pod(port="9000", scrape="false"), None, id="an annotation forbids it"),
        pytest.param(engine_pod(ports=[METRICS_PORT]), page(9090), id="a port named metrics"),
        pytest.param(engine_pod(port="1", ports=[METRICS_PORT]), page(1), id="the annotation wins over a name"),
        pytest.param(engine_pod("docker.io/vllm/vllm-openai:v1"), page(8000), id="vLLM by its image"),
        pytest.param(engine_pod("lmsysorg/sglang:v1"), page(30000), id="SGLang by its image"),
        pytest.param(engine_pod(ports=[{"containerPort": 30000}]), page(30000), id="an engine's port that is declared"),
        pytest.param(engine_pod(env=[{"name": "DYN_SYSTEM_PORT", "value": "8082"}]), page(8082), id="Dynamo says"),
        pytest.param(engine_pod(port="70000"), None, id="a port that cannot be"),
        pytest.param(engine_pod(port="9" * 5000), None, id="a port longer than any number"),
        pytest.param(engine_pod(port="009000"), page(9000), id="a port with noughts before it"),
        pytest.param(engine_pod(port="http"), None, id="a port that is a word"),
        pytest.param(engine_pod(port="9000", scheme="file"), None, id="a scheme that is none"),
        pytest.param(engine_pod(port="9000", path="//evil/x"), page(9000, "//evil/x"), id="a path is a path"),
        pytest.param(engine_pod(port="9000", path="@evil"), None, id="a path begins with a slash"),
        pytest.param(engine_pod(port="9000", phase="Pending"), None, id="a pod that does not run"),
        pytest.param(engine_pod(port="9000", ip="fd00::7"), page(9000, address="fd00::7"), id="an IPv6 address"),
        pytest.param(engine_pod(port="9000", ip=""), None, id="no address yet"),
        pytest.param(engine_pod(port="9000", ip="127.0.0.1"), None, id="this machine is no pod"),
        pytest.param(engine_pod(port="9000", ip="169.254.169.254"), None, id="nor is the cloud's metadata service"),
        pytest.param(engine_pod(port="9000", ip="evil.example"), None, id="nor is a name"),
    ],
)
def test_the_page_of_a_pod(pod: EnginePod, want: Target | None) -> None:
    assert find_target(pod) == want
