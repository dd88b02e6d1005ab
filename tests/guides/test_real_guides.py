"""The guides in docs/guides, followed to the letter on a real API server with real kubectl.

Operator and scheduler run as their accounts with the chart's rights; nodes are fake, and a stand-in plays Koordinator.
Helm's commands are rendered if there is a Helm (`HELM`, or on the PATH); what they do to the processes is done here.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.backend_schemas import definitions
from tests.support.gang_schedulers import Koordinator
from tests.support.go_operator import left_behind, put
from tests.support.guides import PAGES, Block, blocks, file_in
from tests.support.installed import Grove, give_accounts, stopped
from tests.support.manifests import clique, pcs
from tests.support.planes import GrovePlane

from grove.api import labels as key
from grove.api.core import Pod
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.clock import SYSTEM
from grove.kube.config import load_config
from grove.kube.http import HttpClient
from grove.local.controlplane import ControlPlane
from grove.sim.nodes import FakeNodes
from grove.sim.topology import Topology

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]


def open_kind(group: str, version: str, kind: str, plural: str) -> Json:
    """A kind of another API, of which any object is accepted."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
        },
    }


OTHERS = [
    *definitions("koord"),
    open_kind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    open_kind("batch.volcano.sh", "v1alpha1", "Job", "jobs"),
]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with our kinds and other people's, the chart's accounts, and the audit policy of the guide."""
    directory = tmp_path_factory.mktemp("guides")
    policy, log = directory / "audit-policy.yaml", directory / "audit.log"
    policy.write_text(file_in("audit-policy", "audit-policy.yaml"))
    audit = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-maxsize=1000"]
    with GrovePlane(directory / "kube", "1.36.3", controller_manager=True, extra_apiserver_args=audit) as plane:
        give_accounts(plane, *OTHERS)
        yield plane


class Reader:
    """A person at a terminal who follows a guide, block by block. It keeps the output for the test."""

    def __init__(self, plane: ControlPlane, grove: Grove, admin: HttpClient, nodes: FakeNodes, place: Path) -> None:
        self.grove, self.admin, self.nodes, self.said = grove, admin, nodes, ""
        self._plane, self._place = plane, place
        (place / "charts").symlink_to(ROOT / "charts")
        tools = place / "bin"
        tools.mkdir()
        (tools / "kubectl").symlink_to(plane.kubectl)
        for name, module in (("grove", "main"), ("kubectl-grove", "kubectl")):
            _program(tools / name, f"#!{sys.executable}\nfrom grove.cli.{module} import main\n\nmain()\n")
        _program(tools / "helm", HELM)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(plane.kubeconfig),
            "AUDIT_LOG": str(place / "audit.log"),
            "PYTHONPATH": str(ROOT / "src"),
            "GROVE_TEST_HELM": os.environ.get("HELM") or shutil.which("helm") or "",
        }

    async def follow(self, page: str, upto: int | None = None, since: int = 0) -> None:
        for block in blocks(page)[since:upto]:
            await self.do(block)

    async def do(self, block: Block) -> None:
        if (block.language, block.word) == ("yaml", "have"):
            await self.shell("kubectl apply -f - <<'EOF'\n" + block.text + "EOF\n")
        elif block.language == "sh":
            await self.shell(block.text)
            if block.word == "helm":
                await self.grove.obey(block.text)

    async def shell(self, text: str) -> str:
        child = await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            text,
            cwd=self._place,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await child.communicate()
        told = out.decode()
        assert child.returncode == 0, f"$ {text}\n{told}"
        self.said += told
        return told

    async def pods(self, of_set: str) -> dict[str, Pod]:
        """Pods of a set that stay, by uid."""
        found = (await self.admin.list(Pod, "default", labels=f"{key.PART_OF}={of_set}")).items
        return {pod.metadata.uid: pod for pod in found if not pod.metadata.is_deleting}

    async def until_available(self, name: str, replicas: int = 1) -> None:
        say = (
            f"kubectl wait podcliqueset/{name} --for=jsonpath='{{.status.availableReplicas}}'={replicas} --timeout=180s"
        )
        await self.shell(say)


HELM = """#!/bin/sh
# Renders what Helm is told to install, if there is a Helm; releases are played by the test.
[ -n "$GROVE_TEST_HELM" ] || { echo "no helm here: not rendered"; exit 0; }
verb=$1; shift
[ "$verb" = uninstall ] && exit 0
for word; do
  shift
  case $word in --reset-then-reuse-values|--create-namespace) ;; *) set -- "$@" "$word";; esac
done
exec "$GROVE_TEST_HELM" template --kube-version 1.36.0 "$@" > /dev/null
"""


def _program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
async def reader(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Reader]:
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(HttpClient(load_config(plane.kubeconfig)))
        nodes = FakeNodes(admin, SYSTEM)
        await stack.enter_async_context(nodes.running())
        await nodes.add(Topology(racks=1, nodes=4))
        grove = Grove(plane)
        stack.push_async_callback(grove.stop)
        reader = Reader(plane, grove, admin, nodes, tmp_path)
        yield reader
        if not grove.runs:
            await grove.start()
        await reader.shell("kubectl delete podcliquesets --all --wait --timeout=120s")
        for name in list(nodes.names):
            await nodes.remove_node(name)


async def test_from_the_go_operator(reader: Reader) -> None:
    await put(reader.admin, "default", left_behind("scaled"), list(reader.nodes.names))
    before = await reader.pods("simple1")
    reader.grove.profiles, reader.grove.default = ["grove-scheduler", "default-scheduler"], "grove-scheduler"

    await reader.follow("from-the-go-operator")

    assert "default/simple1: 17 pods stay as they are" in " ".join(reader.said.split())
    [look] = [one for one in blocks("from-the-go-operator") if "reason=TakenOver" in one.text]
    async with asyncio.timeout(60):  # a check at once may be ahead of the operator
        while "taken over from another operator" not in reader.said:
            await reader.do(look)
    assert (await reader.pods("simple1")).keys() == before.keys()


async def test_to_koordinator_and_back(reader: Reader) -> None:
    koordinator = asyncio.ensure_future(Koordinator(reader.admin, "default").run())
    try:
        await reader.grove.start()
        other = pcs("other", clique("engine"))
        for one in (pcs("chat", clique("engine", 2)), other):
            one["spec"]["template"]["cliques"][0]["spec"]["podSpec"].pop("schedulerName", None)
            await reader.admin.create(PodCliqueSet, one)
        await reader.until_available("chat")
        await reader.until_available("other")
        untouched = (await reader.pods("other")).keys()
        steps = blocks("to-koordinator-and-back")
        away = next(at for at, one in enumerate(steps) if "defaultProfileName=grove-scheduler" in one.text)

        await reader.follow("to-koordinator-and-back", upto=away)
        assert {pod.spec.scheduler_name for pod in (await reader.pods("chat")).values()} == {"koord-scheduler"}

        await reader.follow("to-koordinator-and-back", since=away)
        assert {pod.spec.scheduler_name for pod in (await reader.pods("chat")).values()} == {"grove-scheduler"}
        assert (await reader.pods("other")).keys() == untouched, "a set that was not moved was not touched"

        # What the page says of trouble with Koordinator: without its profile nothing that runs is touched.
        reader.grove.profiles = ["grove-scheduler", "default-scheduler", "koord-scheduler"]
        await reader.grove.start()
        await reader.do(next(one for one in steps if "name: trial" in one.text))
        running = (await reader.pods("trial")).keys()
        reader.grove.profiles = ["grove-scheduler", "default-scheduler"]
        await reader.grove.start()
        await reader.shell(
            "kubectl wait podcliqueset/trial --for=jsonpath='{.status.lastOperation.state}'=Error --timeout=120s"
        )
        assert (await reader.pods("trial")).keys() == running
    finally:
        await stopped(koordinator)


@pytest.mark.parametrize(
    ("page", "name", "pods"),
    [
        ("from-leaderworkerset", "llm", 6),
        ("from-koordinator-gangs", "serving", 3),
        ("from-volcano", "mpi", 3),
    ],
)
async def test_moving_in_from(reader: Reader, page: str, name: str, pods: int) -> None:
    await reader.grove.start()
    await reader.follow(page)
    found = await reader.pods(name)
    assert len(found) == pods
    assert all(pod.is_bound for pod in found.values())
    assert {pod.spec.scheduler_name for pod in found.values()} == {"grove-scheduler"}


async def test_the_audit_policy_answers_its_questions(reader: Reader, plane: ControlPlane, tmp_path: Path) -> None:
    whole = plane.directory.parent / "audit.log"
    before = whole.stat().st_size
    await reader.grove.start()
    ordered = pcs("chat", clique("a", 2), clique("b"), startup="CliqueStartupTypeInOrder")
    await reader.admin.create(PodCliqueSet, ordered)

    async def bound() -> bool:
        found = await reader.pods("chat")
        return len(found) == 3 and all(pod.is_bound for pod in found.values())

    async with asyncio.timeout(120):
        while not await bound():  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    await reader.shell("kubectl scale podcliqueset chat --replicas=0")
    await reader.shell("kubectl wait pods -l app.kubernetes.io/part-of=chat --for=delete --timeout=120s")

    log = whole.read_bytes()[before:]
    (tmp_path / "audit.log").write_bytes(log)
    asked = [one for one in blocks("audit-policy") if one.language == "sh"]
    who, where, deleted, others, refused = [await reader.shell(one.text) for one in asked]

    assert "grove-admin" in who
    assert '"kind":"Node"' in where
    assert "/api/v1/namespaces/default/pods" in deleted
    assert others.strip() == ""
    assert refused.strip() == ""
    events = [json.loads(line) for line in log.splitlines()]
    secrets = [one for one in events if (one.get("objectRef") or {}).get("resource") == "secrets"]
    assert secrets, "the token of the set was made"
    assert [one for one in secrets if "requestObject" in one] == [], "what is in a Secret is nobody's business"
    ours = [one for one in events if "grove-system" in one["user"]["username"]]
    assert [one for one in ours if one["verb"] in ("get", "list", "watch")] == []


def test_every_guide_is_followed_by_a_test() -> None:
    followed = {
        "from-the-go-operator",
        "to-koordinator-and-back",
        "from-leaderworkerset",
        "from-koordinator-gangs",
        "from-volcano",
        "audit-policy",
    }
    assert {file.stem for file in PAGES.glob("*.md")} == followed
