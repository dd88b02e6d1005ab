"""Questions as a person types them, of a stored cluster behind HTTP: answers, and the exit codes that go with them."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import ClientSession
from bench.cli_bench import serving
from click.shell_completion import ShellComplete
from tests.support.console_process import printed_link, started

from grove.answers.answer import Unanswered
from grove.api.core import Lease
from grove.api.dynamo import PodGangSet
from grove.api.meta import Json
from grove.api.topology import ClusterTopologyBinding
from grove.cli.kubectl import kubectl_grove
from grove.cli.main import grove, run
from grove.config import LeaderElection as OperatorLease
from grove.demo.scenario import load_manifests
from grove.kube.errors import ConnectionLost, Forbidden, TooManyRequests
from grove.local.ports import free_ports
from grove.plan.world import World, binding, shaped
from grove.scheduler.model.config import LeaderElection as SchedulerLease
from grove.sim.loop import run as simulated

SAMPLES = Path(__file__).parents[3] / "samples"
[SMALL] = load_manifests(SAMPLES / "small.yaml")
LEASES, CONFIG_MAPS = Lease.RESOURCE.path(), "/api/v1/configmaps"
TALK = {"metadata": {"name": "talk", "namespace": "default"}, "status": {"podCliqueSetName": "small"}}
"""An object of another API that `small` could be kept for."""
Ask = Callable[..., tuple[int, str, str]]


def leases() -> list[Json]:
    """Operator and scheduler lead, whatever the clock says."""
    names = (OperatorLease().resource_name, SchedulerLease().resource_name)
    spec = {"holderIdentity": "x", "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 2**31 - 1}
    return [{"metadata": {"name": name, "namespace": "grove-system"}, "spec": spec} for name in names]


def wide() -> Json:
    """A set that asks for more than two nodes have."""
    found: Json = json.loads(json.dumps(SMALL))
    found["metadata"]["name"] = "wide"
    found["spec"]["template"]["cliques"][0]["spec"]["replicas"] = 9
    return found


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster where `small` runs and `wide` waits, as it was a moment ago; it does not change any more."""

    async def play() -> dict[str, list[Any]]:
        async with World(shaped(2), objects=[(ClusterTopologyBinding, binding())]) as world:
            await world.apply(SMALL)
            assert await world.until(lambda: world.is_settled("small"))
            await world.apply(wide())
            await asyncio.sleep(20)
            kinds = world.cluster.server.store.collections.values()
            stored = {one.resource.path(): [version.json for version in one.objects.values()] for one in kinds}
            return {LEASES: leases(), CONFIG_MAPS: [], **stored, PodGangSet.RESOURCE.path(): [TALK]}

    stored = tmp_path_factory.mktemp("stored") / "cluster.json"
    stored.write_text(json.dumps(simulated(play())))
    with serving(stored) as path:
        yield path


@pytest.fixture
def ask(kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            run(kubectl_grove, ["--kubeconfig", str(kubeconfig), "-n", "default", *words.split()])
        out, err = capsys.readouterr()
        return int(str(end.value.code)), out, err

    return asked


@pytest.mark.parametrize(
    ("words", "code", "want"),
    [
        pytest.param("explain small", 0, "small: running · 2 of 2 pods ready", id="a set that runs"),
        pytest.param("explain wide", 4, "wide-0: waiting · gang: needs 36 nvidia.com/gpu, 8 free", id="one that waits"),
        pytest.param("explain podgangs/small-0", 0, "small-0: running", id="a gang, by its kind"),
        pytest.param("explain small-0-server", 0, "small-0: running", id="a clique, by its name alone"),
        pytest.param("explain wide --scores", 4, "there is no place for it", id="scores of a place that is not there"),
        pytest.param("explain wide --scheduler-config /dev/null", 4, "waiting", id="by a configuration of one's own"),
        pytest.param("queue", 4, "default wide-0 waiting 0 9", id="the queue"),
        pytest.param("queue --tree", 0, "this cluster has no queues", id="a cluster without queues"),
        pytest.param(
            "rollout status small", 0, "small: up to date: 2 of 2 pods up to date", id="an update that is over"
        ),
        pytest.param("rollout status small --watch", 0, "small: up to date", id="which is told once if watched"),
        pytest.param(
            "rollout status talk --watch", 0, "small: up to date", id="watched by the name its PodGangSet has"
        ),
        pytest.param("rollout history small", 0, "yes example/server:1 (server)", id="the templates that are kept"),
        pytest.param("rollout resume small", 0, "updates of small are not paused", id="nothing to resume"),
        pytest.param("scaleref small/server", 0, "kind: PodClique name: small-0-server", id="what an autoscaler names"),
        pytest.param("topology", 0, "z0-b0-r0-n0 ████████████████ 8/8 small-0 ×8", id="who is where"),
        pytest.param("events small", 0, "PodGang/small-0 GangScheduled placed 2 pods", id="what happened to a set"),
        pytest.param(
            "events pclq/small-0-server", 0, "PodClique/small-0-server Created", id="what happened to a clique"
        ),
        pytest.param("tree small", 0, "small-0 1.00 z0-b0-r0", id="a set as a tree"),
        pytest.param("status", 4, "default wide waiting 0/1 0/9 0/36", id="the worst first"),
        pytest.param("status -l a=b", 0, "no PodCliqueSets", id="nobody carries the label"),
    ],
)
def test_an_answer(ask: Ask, words: str, code: int, want: str) -> None:
    found, out, err = ask(words)
    assert (found, err) == (code, "")
    assert want in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param("explain xyz/small", "xyz is not a kind either: pcs, pg, pcsg, pclq, po", id="a kind"),
        pytest.param("explain nobody", "there is no PodCliqueSet, PodGang, group, clique or pod nobody", id="a name"),
        pytest.param(
            "status smal", "there is no PodCliqueSet smal in namespace default; did you mean small?", id="nearly a name"
        ),
        pytest.param(
            "status xyz",
            "there is no PodCliqueSet xyz in namespace default; of PodCliqueSets there are small, wide",
            id="a name like no other",
        ),
        pytest.param(
            "status smal --watch", "there is no PodCliqueSet smal in namespace default", id="a status to watch"
        ),
        pytest.param("status smal -A --watch", "there is no PodCliqueSet smal; did you mean small?", id="one anywhere"),
        pytest.param("tree smal --watch", "there is no PodCliqueSet smal in namespace default", id="a tree to watch"),
        pytest.param(
            "rollout status smal --watch", "there is no PodCliqueSet smal in namespace default", id="an update to watch"
        ),
        pytest.param("status -n defult", "there is no namespace defult; did you mean default?", id="a namespace"),
        pytest.param("tree small -n nosuch", "there is no namespace nosuch", id="a set of no namespace"),
        pytest.param("plan --drain z0-b0-r0-n", "did you mean z0-b0-r0-n", id="nearly a node"),
        pytest.param("rollout undo small", "no earlier template of small is kept", id="nothing to go back to"),
        pytest.param(
            "rollout undo small --to-revision 7", "there is no revision 7 of small; kept are 1", id="a revision"
        ),
        pytest.param("scale small/server 3 --replica 4", "small has 1 replica, there is no replica 4", id="a replica"),
        pytest.param("scale small 1 --replica 0", "a set itself is scaled whole", id="a replica of a set"),
        pytest.param("scale small many", "replicas must be a whole number", id="a number"),
        pytest.param("plan --scale small", "--scale small: write it like chat/prefill=5", id="half a change"),
        pytest.param("top", "top needs a terminal", id="a screen without a terminal"),
        pytest.param("logs small", "and 1 other pod: not found", id="pods without logs"),
        pytest.param("logs small --tail 3 --since 5m", "and 1 other pod: not found", id="nor their last lines"),
        pytest.param("logs small/server/x", "the replica is a number, as in small/server/0", id="a part"),
        pytest.param("logs small/nobody", "small has no group or clique nobody; it has server", id="a role"),
        pytest.param("logs small --since soon", "--since soon: not a duration", id="a time"),
        pytest.param("exec small -- ls", "kubectl is not on your PATH", id="a machine without kubectl"),
        pytest.param(
            f"reserve -f {SAMPLES}/small.yaml", "this cluster has no Reservation", id="a cluster without them"
        ),
        pytest.param(f"reserve -f {SAMPLES}/small.yaml --for soon", "--for: not a duration", id="how long"),
        pytest.param(
            f"reserve -f {SAMPLES}/cluster-topology.yaml", "there is no PodCliqueSet in the files", id="for whom"
        ),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_line(
    ask: Ask, words: str, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, err = ask(words)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert want in err


@pytest.mark.parametrize(
    ("step", "error", "want"),
    [
        pytest.param(
            "grove.plan.copying.copy_cluster", TooManyRequests("slow down", code=429), "slow down", id="a busy server"
        ),
        pytest.param("grove.plan.copying.copy_cluster", ConnectionLost("timed out"), "timed out", id="no answer"),
        pytest.param(
            "grove.plan.copying.copy_cluster",
            Forbidden("no", code=403),
            "you may not see the nodes and pods",
            id="no right to look",
        ),
        pytest.param("grove.answers.settings.settings_of", Unanswered("bad file"), "bad file", id="unusable settings"),
        pytest.param("grove.answers.plan.plan_answer", Unanswered("refused"), "refused", id="a copy that refuses it"),
    ],
)
def test_scaling_goes_on_where_its_fit_cannot_be_predicted(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception, want: str
) -> None:
    async def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(step, fails)
    code, out, err = ask("scale small/server 3 --dry-run")
    assert (code, err) == (0, "")
    assert "PodClique small-0-server: 2 → 3 (dry run)" in out
    assert f"no answer whether the new pods fit: {want}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "code", "want"),
    [
        pytest.param("version", 0, "grove 0.", id="its version"),
        pytest.param("startup -p router", 1, "want <podclique>", id="an init container started wrongly"),
        pytest.param("webhooks --kubeconfig {}", 0, ": not there", id="webhooks that nobody registered"),
        pytest.param("webhooks --kubeconfig {} --also pod/x", 2, "say lease/NAME or secret/NAME", id="what else goes"),
    ],
)
def test_commands_of_grove_itself(
    kubeconfig: Path, words: str, code: int, want: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run(grove, words.format(kubeconfig).split())
    out, err = capfd.readouterr()
    assert end.value.code == code
    assert want in out + err


def test_a_topology_is_drawn_into_a_file(ask: Ask, tmp_path: Path) -> None:
    code, _, err = ask(f"topology --svg {tmp_path / 'it.svg'}")
    assert (code, err) == (0, f"drawn into {tmp_path / 'it.svg'}\n")
    assert "small-0" in (tmp_path / "it.svg").read_text()


async def test_the_console_is_behind_a_link_and_ends_when_asked(kubeconfig: Path) -> None:
    words = ("console", "--no-open", "--kubeconfig", str(kubeconfig))
    async with started(*words) as process, ClientSession() as http:
        url, link = await printed_link(process)
        async with http.post(f"{url}/api/session", data=json.dumps({"link": link})) as answer:
            headers = {"Authorization": f"Bearer {(await answer.json())['session']}"}
        asked = json.dumps({"namespace": "default", "name": "small"})
        async with http.post(f"{url}/api/ask/why", data=asked, headers=headers) as answer:
            assert (answer.status, "2 of 2 pods ready" in await answer.text()) == (200, True), await answer.text()
        async with http.post(f"{url}/api/ask/nonsense", data="{}", headers=headers) as answer:
            assert answer.status == 404
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0


async def test_the_console_inside_a_cluster_asks_everybody_for_a_token(kubeconfig: Path) -> None:
    [port] = free_ports(1)
    words = ("console", "--in-cluster", "--port", str(port), "--kubeconfig", str(kubeconfig))
    async with started(*words) as process, ClientSession() as http:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while f"serving on port {port}" not in (line := (await process.stderr.readline()).decode()):
                assert line, "it ended"
        async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        async with http.post(f"http://127.0.0.1:{port}/api/ask/queue", data="{}") as answer:
            assert answer.status == 401
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0


@pytest.mark.parametrize(
    ("words", "incomplete", "want"),
    [
        pytest.param("tree --kubeconfig {} -n default", "sm", ["small"], id="flags after the command"),
        pytest.param("--kubeconfig {} -n default tree", "sm", ["small"], id="flags before it"),
        pytest.param("--kubeconfig {} -n default explain", "", ["small", "wide"], id="all there are"),
        pytest.param("--kubeconfig {} -n other tree", "", [], id="none in another namespace"),
        pytest.param("--kubeconfig /nonexistent tree", "", [], id="silence where there is no cluster"),
    ],
)
def test_the_shell_completes_names_of_sets(kubeconfig: Path, words: str, incomplete: str, want: list[str]) -> None:
    shell = ShellComplete(kubectl_grove, {}, "kubectl grove", "_COMPLETE")
    found = shell.get_completions(words.format(kubeconfig).split(), incomplete)
    assert [one.value for one in found] == want


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        pytest.param('pods is forbidden: User "nobody" cannot list', True, id="a right that is missing"),
        pytest.param('admission webhook "x" denied the request: no', False, id="a webhook's refusal"),
    ],
)
def test_who_lacks_a_right_is_sent_to_the_doctor(message: str, hint: bool, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def asks() -> None:
        raise Forbidden(message, code=403, reason="Forbidden")

    with pytest.raises(SystemExit) as end:
        run(asks, [])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert message in told
    assert ("kubectl grove doctor" in told) is hint
