"""`grove startup` as the init container runs it: its own process, its own token, a real API server."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.waiting import HANGS_S, eventually

from grove.api.meta import Resource
from grove.kube.errors import Forbidden
from grove.kube.http import HttpClient
from grove.operator.shared.startup import with_startup_container

NAMESPACE = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
POD = Resource("", "v1", "Pod", "pods")
SECRET = Resource("", "v1", "Secret", "secrets")
ACCOUNT = Resource("", "v1", "ServiceAccount", "serviceaccounts")
QUOTA = Resource("", "v1", "ResourceQuota", "resourcequotas")
ROLE = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
BINDING = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


@pytest.fixture
async def waiter(client: HttpClient, control_plane: Any, fresh_name: str, tmp_path: Path):
    """Everything a waiting pod has: a namespace, an account with the role's rights, and the two mounted folders."""
    await client.create(NAMESPACE, {"metadata": {"name": fresh_name}})
    await eventually(lambda: client.get(ACCOUNT, "default", fresh_name))  # pods of a namespace without it are refused
    await client.create(ACCOUNT, {"metadata": {"name": "web", "namespace": fresh_name}})
    await client.create(
        SECRET,
        {
            "metadata": {
                "name": "web-ic-sat",
                "namespace": fresh_name,
                "annotations": {"kubernetes.io/service-account.name": "web"},
            },
            "type": "kubernetes.io/service-account-token",
        },
    )
    secret: dict[str, Any] = {}
    while "token" not in (secret.get("data") or {}):
        await asyncio.sleep(0.05)
        secret = await client.get(SECRET, "web-ic-sat", fresh_name)
    account, info = tmp_path / "account", tmp_path / "info"
    account.mkdir()
    info.mkdir()
    for name in ("token", "ca.crt"):
        (account / name).write_bytes(base64.b64decode(secret["data"][name]))
    (info / "namespace").write_text(fresh_name)
    (info / "podgangname").write_text("web-0")
    yield Waiter(client, fresh_name, account, info, urlsplit(control_plane.server).port or 443)
    await client.delete(NAMESPACE, fresh_name)


class Waiter:
    def __init__(self, client: HttpClient, namespace: str, account: Path, info: Path, port: int) -> None:
        self.client, self.namespace, self.account, self.info, self.port = client, namespace, account, info, port

    async def allow(self) -> None:
        rule = {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "watch"]}
        meta = {"name": "web", "namespace": self.namespace}
        await self.client.create(ROLE, {"metadata": meta, "rules": [rule]})
        await self.client.create(
            BINDING,
            {
                "metadata": meta,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web"},
                "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": self.namespace}],
            },
        )

    async def start(self, *parents: str, condition: str = "") -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "grove.startup",
            "--pod-info",
            self.info,
            "--account",
            self.account,
            *(f"--podcliques={parent}" for parent in parents),
            *([f"--condition={condition}"] if condition else []),
            env={**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def make_pod(self, name: str, clique: str) -> None:
        labels = {"grove.io/podgang": "web-0", "grove.io/podclique": clique}
        spec = {"containers": [{"name": "c", "image": "none"}], "schedulerName": "nobody"}
        await self.client.create(
            POD, {"metadata": {"name": name, "namespace": self.namespace, "labels": labels}, "spec": spec}
        )

    async def make_ready(self, name: str, status: str = "True") -> None:
        condition = {"type": "Ready", "status": status}
        await self.client.patch(
            POD, name, {"status": {"conditions": [condition]}}, self.namespace, subresource="status"
        )


async def said(process: asyncio.subprocess.Process, words: str) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(HANGS_S):
        while line := (await process.stdout.readline()).decode():
            if words in line:
                return line
    raise AssertionError(f"it ended without saying {words!r}")


async def ended(process: asyncio.subprocess.Process) -> int:
    return await asyncio.wait_for(process.wait(), HANGS_S)


async def test_it_holds_until_every_parent_has_its_minimum_ready(waiter: Waiter):
    await waiter.allow()
    await waiter.make_pod("router-1", "web-0-router")
    await waiter.make_pod("leader-1", "web-0-leader")
    process = await waiter.start("web-0-router:1", "web-0-leader:1")
    await said(process, "waiting for web-0-leader=0/1, web-0-router=0/1")
    await waiter.make_ready("router-1")
    await said(process, "waiting for web-0-leader=0/1, web-0-router=1/1")
    await waiter.make_ready("leader-1")
    assert await ended(process) == 0, "released by the event: its watch would last five minutes"


async def test_it_counts_pods_that_run_or_have_a_node_if_it_is_asked_to(waiter: Waiter):
    await waiter.allow()
    await waiter.make_pod("leader-1", "web-0-leader")
    created = await waiter.start("web-0-leader:1", condition="Created")
    started = await waiter.start("web-0-leader:1", condition="Started")
    await said(created, "waiting for web-0-leader=0/1 Created")
    await said(started, "waiting for web-0-leader=0/1 Started")

    pod = await waiter.client.get(POD, "leader-1", waiter.namespace)
    await waiter.client.bind(waiter.namespace, "leader-1", "somewhere", uid=pod["metadata"]["uid"])
    assert await ended(created) == 0

    running = {"name": "c", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": {"running": {}}}
    status = {"phase": "Running", "containerStatuses": [running]}
    await waiter.client.patch(POD, "leader-1", {"status": status}, waiter.namespace, subresource="status")
    assert await ended(started) == 0


def used(pid: int) -> tuple[float, float]:
    """Memory at its highest, and CPU; not wall time, for the machine may be busy with something else."""
    status, stat = (Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "stat"))
    (highest_kb,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    fields = stat.rsplit(")", 1)[1].split()
    return int(highest_kb) / 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_it_is_small_and_quick(waiter: Waiter):
    await waiter.allow()
    for _ in range(3):  # the best of three: on a busy machine the same work takes more of the CPU
        process = await waiter.start("web-0-router:1")
        await said(process, "waiting for")
        memory_mb, cpu_s = used(process.pid)
        process.terminate()
        await process.wait()
        assert memory_mb <= 40
        if cpu_s <= 0.3:
            return
    raise AssertionError(f"{cpu_s} s of CPU")


async def test_missing_rights_are_waited_out(waiter: Waiter):
    await waiter.make_pod("router-1", "web-0-router")
    await waiter.make_ready("router-1")
    process = await waiter.start("web-0-router:1")
    await said(process, "cannot watch pods yet: the API server answered 403")
    await waiter.allow()
    assert await ended(process) == 0


async def test_a_token_that_comes_late_is_waited_out(waiter: Waiter):
    await waiter.allow()
    await waiter.make_pod("router-1", "web-0-router")
    await waiter.make_ready("router-1")
    token = (waiter.account / "token").read_bytes()
    (waiter.account / "token").unlink()
    process = await waiter.start("web-0-router:1")
    await said(process, "cannot watch pods yet")
    (waiter.account / "token").write_bytes(token)
    assert await ended(process) == 0


async def test_it_ends_with_1_and_one_line_after_a_signal(waiter: Waiter):
    await waiter.allow()
    process = await waiter.start("web-0-router:1")
    await said(process, "waiting for")
    process.terminate()
    assert await ended(process) == 1


async def test_a_pod_without_the_mounted_files_ends_at_once_with_one_clear_line(waiter: Waiter):
    (waiter.info / "podgangname").unlink()
    process = await waiter.start("web-0-router:1")
    line = await said(process, "cannot read")
    assert "podgangname: No such file or directory" in line
    assert await ended(process) == 1


async def test_a_restricted_namespace_with_a_quota_on_limits_takes_the_pod_as_guaranteed(
    client: HttpClient, fresh_name: str
) -> None:
    """What the start-order container lacked made the API server refuse the pod, or its QoS class another one."""
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.create(NAMESPACE, {"metadata": {"name": fresh_name, "labels": enforced}})
    hard = {"limits.cpu": "100", "limits.memory": "1Ti", "requests.cpu": "100", "requests.memory": "1Ti"}
    await client.create(QUOTA, {"metadata": {"name": "all", "namespace": fresh_name}, "spec": {"hard": hard}})
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    amounts = {"cpu": "4", "memory": "8Gi"}
    main = {"name": "main", "image": "i", "securityContext": secure, "resources": {"limits": amounts}}
    spec = with_startup_container({"containers": [main]}, "web", "initc:1", (("web-0-a", 1),))
    pod = {"metadata": {"name": "p", "namespace": fresh_name}, "spec": {**spec, "automountServiceAccountToken": False}}

    async def made() -> dict[str, Any]:
        """A new namespace has its account, and its quota its status, a moment later."""
        async with asyncio.timeout(HANGS_S):
            while True:
                try:
                    return await client.create(POD, pod, dry_run=True)
                except Forbidden as error:
                    if "serviceaccount" not in str(error) and "status unknown for quota" not in str(error):
                        raise
                    await asyncio.sleep(0.1)

    assert (await made())["status"]["qosClass"] == "Guaranteed"
    await client.delete(NAMESPACE, fresh_name)
