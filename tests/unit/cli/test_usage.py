"""`usage`: sums over counters, prices, the text, and what the command refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from grove.answers.answer import Unanswered
from grove.answers.usage import counted_usage, counters
from grove.api.core import Pod
from grove.cli.main import grove
from grove.kube.client import Page
from grove.show.usage import Prices, Sample, painted, usage
from grove.sim.cluster import SimCluster

HOUR = 3600.0


def sample(hours: float, state: str, set_: str = "", queue: str = "", namespace: str = "prod") -> Sample:
    return Sample({"namespace": namespace, "set": set_, "queue": queue, "state": state}, hours * HOUR)


SAMPLES = [
    sample(80, "serving", "chat", "team-a"),
    sample(5, "starting", "chat", "team-a"),
    sample(5, "held", "chat", "team-a"),
    sample(40, "waiting", "chat", "team-a"),
    sample(10, "broken", "code", "team-b"),
    sample(20, "serving", "", "", "lab"),
    sample(80, "idle", namespace=""),
]
PRICES = Prices(gpu_hour=2.0, currency="EUR", queues={"team-b": 1.5})


def test_sums_by_set_and_team_with_the_largest_first() -> None:
    found = usage(SAMPLES, "today", PRICES)
    assert [(line.namespace, line.set, line.taken, line.cost) for line in found.sets] == [
        ("prod", "chat", 90.0, 180.0),
        ("lab", "", 20.0, 40.0),
        ("prod", "code", 10.0, 15.0),
    ]
    assert [(line.queue, line.taken, line.cost) for line in found.teams] == [
        ("team-a", 90.0, 180.0),
        ("", 20.0, 40.0),
        ("team-b", 10.0, 15.0),
    ]
    assert found.sets[0].gpu_hours == {"serving": 80.0, "starting": 5.0, "held": 5.0, "waiting": 40.0}
    assert (found.gpu_hours, found.idle_gpu_hours, found.idle_share, found.idle_cost) == (200.0, 80.0, 0.4, 160.0)


def test_one_namespace_has_its_own_lines_and_the_idle_share_of_all_nodes() -> None:
    found = usage(SAMPLES, "today", namespace="lab")
    assert [(line.namespace, line.set) for line in found.sets] == [("lab", "")]
    assert found.idle_share == 0.4


def test_several_schedulers_that_counted_one_after_the_other_are_added_up() -> None:
    found = usage([sample(1, "serving", "chat"), sample(2, "serving", "chat")], "today")
    assert [line.taken for line in found.sets] == [3.0]


def text(samples: list[Sample], prices: Prices | None = None) -> list[str]:
    console = Console(width=120, file=None, color_system=None)
    with console.capture() as captured:
        console.print(painted(usage(samples, "of the last 24h", prices), 120))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_text_has_both_tables_the_money_and_the_idle_share() -> None:
    shown = text(SAMPLES, PRICES)
    assert shown[0] == "GPU-hours of the last 24h"
    assert shown[2].split() == ["SET", "TEAM", "SERVING", "STARTING", "HELD", "BROKEN", "WAITING", "COST"]
    assert shown[3].split() == ["prod/chat", "team-a", "80.0", "5.0", "5.0", "-", "40.0", "180.00", "EUR"]
    assert shown[-1] == "40% idle: 80.0 of 200.0 GPU-hours of all nodes, 160.00 EUR"


def test_without_gpus_the_text_says_so() -> None:
    assert text([])[-1] == "no GPUs were counted"


PAGE = """# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE grove_gpu_seconds_total counter
grove_gpu_seconds_total{namespace="prod",queue="",set="chat",state="serving"} 7200.0
# TYPE grove_gpu_seconds_created gauge
grove_gpu_seconds_created{namespace="prod",queue="",set="chat",state="serving"} 1.7e+09
"""


def test_the_counters_on_a_page_of_the_scheduler_are_read() -> None:
    labels = {"namespace": "prod", "queue": "", "set": "chat", "state": "serving"}
    assert counters(PAGE) == ([Sample(labels, 7200.0)], 1.7e9)
    assert counters("") == ([], 0.0)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {}}]
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since", "soon", "--prometheus", "http://127.0.0.1:1"], "--since: not a duration"),
        (["--since", "0s", "--prometheus", "http://127.0.0.1:1"], "--since must be more than zero"),
        (["--since", "2h"], "--since needs --prometheus"),
        (["--prometheus", "http://127.0.0.1:1"], "Prometheus at http://127.0.0.1:1 does not answer"),
        (["--scheduler", "http://127.0.0.1:1"], "http://127.0.0.1:1/metrics cannot be read"),
    ],
)
def test_what_cannot_be_answered_says_why(tmp_path: Path, arguments: list[str], words: str) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    done = CliRunner().invoke(grove, ["usage", "--kubeconfig", str(config), *arguments])
    assert done.exit_code != 0
    assert words in f"{done.output} {done.exception}"


@pytest.mark.parametrize("prices", ["gpuHour: cheap\n", "currency: EUR\n", "gpuHour: 1\nmore: 2\n", "[]"])
def test_a_price_file_that_is_wrong_is_refused(tmp_path: Path, prices: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(prices)
    done = CliRunner().invoke(grove, ["usage", "--prices", str(path)])
    assert done.exit_code == 2
    assert "--prices: " in done.output


@contextmanager
def serving(pages: Mapping[str, str]) -> Iterator[str]:
    """A server on this machine with these pages."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            self.send_response(200 if page is not None else 404)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_scheduler_at_an_address_is_read_and_priced(tmp_path: Path) -> None:
    config, prices = tmp_path / "config", tmp_path / "prices.yaml"
    config.write_text(KUBECONFIG)
    prices.write_text("gpuHour: 3\ncurrency: EUR\n")
    with serving({"/metrics": PAGE}) as address:
        asked = ["usage", "-A", "--kubeconfig", str(config), "--scheduler", address, "--prices", str(prices)]
        done = CliRunner().invoke(grove, asked)
    assert done.exit_code == 0, done.output
    assert "prod/chat" in done.output
    assert "6.00 EUR" in done.output
    assert "since the scheduler started, 2023-11-14 22:13 UTC" in done.output


def test_a_prometheus_at_an_address_is_queried(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    labels = '{"namespace": "prod", "set": "chat", "queue": "team-a", "state": "serving"}'
    series = f'{{"metric": {labels}, "value": [1.0, "7200.5"]}}'
    page = f'{{"status": "success", "data": {{"resultType": "vector", "result": [{series}]}}}}'
    with serving({"/api/v1/query": page}) as address:
        asked = ["usage", "-A", "--kubeconfig", str(config), "--prometheus", f"{address}/", "-o", "json"]
        done = CliRunner().invoke(grove, asked)
    assert done.exit_code == 0, done.output
    [line] = json.loads(done.stdout)["sets"]
    assert (line["set"], round(line["gpuHours"]["serving"], 2)) == ("chat", 2.0)


def test_the_environment_gives_the_prometheus_unless_the_command_line_names_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    query = '{"status": "success", "data": {"resultType": "vector", "result": []}}'
    with serving({"/metrics": PAGE, "/api/v1/query": query}) as address:
        monkeypatch.setenv("GROVE_PROMETHEUS", address)
        asked = ["usage", "-A", "--kubeconfig", str(config)]
        past = CliRunner().invoke(grove, [*asked, "--since", "2h", "-o", "json"])
        now = CliRunner().invoke(grove, [*asked, "--scheduler", address, "-o", "json"])
    assert (past.exit_code, now.exit_code) == (0, 0), past.output + now.output
    assert json.loads(past.stdout)["sets"] == []
    assert [line["set"] for line in json.loads(now.stdout)["sets"]] == ["chat"]


class Pages:
    """The part of a client that reads the page of the scheduler."""

    async def list(self, kind: type[Pod], namespace: str = "", *, labels: str = "", fields: str = "") -> Page[Pod]:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        raw = {"metadata": {"name": "s", "namespace": "g"}, "spec": {"containers": []}, "status": ready}
        return Page([msgspec.convert(raw, kind)], "1")

    async def pod_page(self, namespace: str, pod: str, port: int, path: str) -> str:
        assert (namespace, pod, port, path) == ("g", "s", 8080, "metrics")
        labels = 'namespace="prod",set="chat",queue="team-a",state="serving"'
        return f"# TYPE grove_gpu_seconds_total counter\ngrove_gpu_seconds_total{{{labels}}} 7200.0\n"


async def test_the_console_asks_the_scheduler_with_the_rights_of_its_viewer() -> None:
    found = await counted_usage(Pages(), "")  # type: ignore[arg-type]
    assert [(line.queue, line.gpu_hours) for line in found.teams] == [("team-a", {"serving": 2.0})]


async def test_a_simulated_cluster_has_no_page_of_the_scheduler() -> None:
    with pytest.raises(Unanswered, match="simulated"):
        await counted_usage(SimCluster().client(), "")
