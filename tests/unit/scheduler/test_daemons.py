"""What of a node is never given back: the pods that belong to the machine itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support import objects

from grove.api.core import Pod
from grove.scheduler.policy.cluster_changes import Changes
from grove.scheduler.sources.node_sources import DaemonPods


class OnePodCache:
    def on_event(self, kind: type[Pod], handler: Any) -> None:
        self.tell = handler


def owned_pod(owner: str = "DaemonSet", node: str = "n1", cpu: str = "500m", phase: str = "Running") -> Pod:
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}] if owner else []
    containers = [{"name": "main", "image": "image", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"nodeName": node, "containers": containers}
    return objects.pod(uid="u", ownerReferences=owners, spec=spec, status={"phase": phase})


@pytest.mark.parametrize(
    ("changes", "kept", "went"),
    [
        pytest.param([owned_pod()], {"n1": {"cpu": 500, "pods": 1}}, False, id="of a DaemonSet"),
        pytest.param([owned_pod("Node")], {"n1": {"cpu": 500, "pods": 1}}, False, id="static"),
        pytest.param([owned_pod("ReplicaSet")], {}, False, id="of anybody else"),
        pytest.param([owned_pod("")], {}, False, id="of nobody"),
        pytest.param([owned_pod(node="")], {}, False, id="not on a node yet"),
        pytest.param([owned_pod(), owned_pod(cpu="200m")], {"n1": {"cpu": 200, "pods": 1}}, True, id="made smaller"),
        pytest.param([owned_pod(), owned_pod()], {"n1": {"cpu": 500, "pods": 1}}, False, id="a heartbeat"),
        pytest.param([owned_pod(), owned_pod(phase="Failed")], {}, True, id="ended"),
        pytest.param([owned_pod(), None], {}, True, id="gone"),
    ],
)
def test_what_daemons_keep_of_their_nodes(
    changes: list[Pod | None], kept: dict[str, dict[str, int]], went: bool
) -> None:
    cache, heard = OnePodCache(), Changes(lambda: None)
    daemons = DaemonPods(SimpleNamespace(cache=cache, changes=heard))  # type: ignore[arg-type]
    daemons.follow()
    old = None
    for new in changes:
        cache.tell(old, new)
        old = new
    assert {node: dict(amounts) for node, amounts in daemons.kept().items()} == kept
    assert heard.take_relief().daemons_went is went
