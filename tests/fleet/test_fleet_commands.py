"""`grove fleet` on the command line: results, reports, two runs compared, the file of a fleet, the progress bar."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from grove.cli.fleet import fleet as fleet_command
from grove.fleet.file import read, text_of

SMALL = """\
lasts: 2h
cluster:
  nodes: [{name: h100, nodes: 4}]
teams:
- {name: chat, quota: 16}
- {name: research, quota: 16}
work:
  serving:
  - name: web
    team: chat
    podsAvailable: 1
    load: {peak: 10, low: 5}
    releases: {every: 1h, first: 30m}
    parts: [{name: decode, gpus: 8, replicas: 2, requestsPerSecond: 8}]
  batch: [{name: job, team: research, every: 10m, pods: 1, lasts: 15m}]
"""


def grove_fleet(*arguments: str) -> Result:
    return CliRunner().invoke(fleet_command, arguments, standalone_mode=False, env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two fleets. The second has no team `research`, and a second set."""
    folder = tmp_path_factory.mktemp("fleets")
    (folder / "small.yaml").write_text(SMALL)
    without_batch = SMALL[: SMALL.index("  batch:")].replace("- {name: research, quota: 16}\n", "")
    more = "  - {name: docs, team: chat, load: {peak: 1}, parts: [{name: embed, gpus: 1, requestsPerSecond: 5}]}\n"
    (folder / "other.yaml").write_text(without_batch + more)
    for name in ("small", "other"):
        paths = [str(folder / f"{name}.{kind}") for kind in ("yaml", "json", "html")]
        ran = grove_fleet(paths[0], "--json", paths[1], "--html", paths[2])
        assert ran.return_value == 0, ran.output
    return folder


def test_the_summary_says_how_strict_the_judges_were(folder):
    ran = grove_fleet(str(folder / "small.yaml"))
    assert "all held" in ran.output
    assert "web excused" in ran.output
    assert "of instances, weighed by time; updated for" in ran.output


def test_the_report_has_cpu_time_and_the_json_has_none(folder):
    text = (folder / "small.html").read_text()
    assert "CPU time of the scheduler&#x27;s turns" in text
    assert "Below budget" in text
    assert b"cpu" not in (folder / "small.json").read_bytes().lower()


def rows(output: str) -> dict[str, list[str]]:
    """The cells of each row by its first cell."""
    cells = ([cell.strip() for cell in line.split("  ") if cell.strip()] for line in output.splitlines())
    return {row[0]: row[1:] for row in cells if row}


def test_two_runs_are_compared_also_where_only_one_has_a_set_or_a_team(folder):
    ran = grove_fleet("--compare", str(folder / "small.json"), str(folder / "other.json"))
    assert ran.return_value == 0
    found = rows(ran.output)
    assert found["FIGURE"] == ["small.json", "other.json", "BETTER"]
    assert found["team chat, got of due"] == ["100.0 %", "100.0 %"]
    assert found["team research, got of due"][1] == "–"
    assert found["docs requests lost"][0] == "–"
    assert found["docs below its minimum"] == ["–", "0.0 s"]
    assert "docs below its budget" not in found
    assert {"web below its budget", "web updates, p50", "web updates, worst", "web restarts"} <= found.keys()
    assert found["batch gangs finished"][-1] == "small.json"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b"{}", "is not a result of", id="another JSON"),
        pytest.param(b"[1]", "is not a result of", id="a list"),
        pytest.param(b"title: x", "is not a result of", id="not JSON"),
        pytest.param(b'{"version": 1, "utilisation": {}}', "was written by another version", id="an older result"),
    ],
)
def test_what_is_no_result_is_not_compared(folder, content, fault):
    (folder / "wrong.json").write_bytes(content)
    ran = grove_fleet("--compare", str(folder / "small.json"), str(folder / "wrong.json"))
    assert fault in str(ran.exception)
    assert ran.exception.exit_code == 2


def test_a_missing_result_is_not_compared(folder):
    ran = grove_fleet("--compare", str(folder / "small.json"), str(folder / "none.json"))
    assert "none.json: No such file" in str(ran.exception)


def test_a_ready_made_file_is_printed_as_it_is():
    ran = grove_fleet("lab", "--print")
    assert ran.output == text_of("lab")
    assert read(ran.output).gpus == 64


def test_the_files_that_come_with_grove_are_listed():
    found = rows(grove_fleet("--list").output)
    assert {"lab", "company", "cloud", "bad-week"} <= found.keys()


def test_a_progress_bar_is_shown_on_a_terminal_and_nowhere_else(folder, tmp_path):
    """The bar is on stderr, so that the table on stdout can be piped."""
    terminal, end = os.openpty()
    command = [sys.executable, "-m", "grove", "fleet", str(folder / "small.yaml"), "--json", str(tmp_path / "a.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, env=os.environ | {"TERM": "xterm"}) as ran:
        os.close(end)
        drawn = b""
        try:
            while chunk := os.read(terminal, 65536):
                drawn += chunk
        except OSError:
            pass  # the program has closed its end
        output = ran.stdout.read() if ran.stdout is not None else b""
    os.close(terminal)
    assert ran.returncode == 0
    assert b"0.0833333 simulated days" in drawn
    assert b"100%" in drawn
    assert b"simulated days" not in output
    piped = subprocess.run(command, capture_output=True, check=True)
    assert b"\x1b[" not in piped.stderr
    assert msgspec.json.decode((tmp_path / "a.json").read_bytes())["promises"] == []


def test_without_a_terminal_a_long_run_says_from_time_to_time_how_far_it_is(folder, monkeypatch):
    monkeypatch.setattr("grove.cli.fleet.LINE_EVERY_S", 0.0)
    ran = grove_fleet(str(folder / "small.yaml"), "--for", "30m")
    lines = [line for line in ran.stderr.splitlines() if "simulated days after" in line]
    assert lines[0].startswith("0.0 % of 0.0208333 simulated days after ")
    assert lines[-1].startswith("100.0 %")
    assert "simulated days after" not in ran.stdout
