"""`grove fleet` refuses bad files before it simulates anything: exit code 2, the line and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from grove.cli import fleet as cli
from grove.cli.fleet import fleet as fleet_command

GOOD = """\
lasts: 2d
cluster:
  nodes:
  - {name: h100, racks: 2, nodes: 2, cpu: "64"}
  maintenance: [{every: 1d, racks: 1}]
teams:
- {name: chat, priority: 10, limit: 24}
work:
  serving:
  - name: web
    team: chat
    replicas: 1
    podsAvailable: 1
    load: {peak: 10, low: 1, noise: 0.1}
    parts:
    - {name: decode, requestsPerSecond: 5, pods: 1, gpus: 4, replicas: 2}
  batch:
  - {name: job, team: chat, every: 1h, pods: 2, gpus: 8, lasts: 30m}
  traces:
  - {file: jobs.csv}
"""
HEADER = "arrival,pods,gpus,duration,team,priority\n"
JOBS = HEADER + "0,2,8,600,chat,5\n60,1,4,600,chat,\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the test, with a good trace. Nothing is simulated."""
    monkeypatch.chdir(tmp_path)

    def simulated(*_arguments: object) -> None:
        raise AssertionError("the fleet is simulated")

    monkeypatch.setattr(cli, "run_fleet", simulated)
    (tmp_path / "mine.yaml").write_text(GOOD)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def said(*arguments: str) -> list[str]:
    """The faults that it names."""
    ran = CliRunner().invoke(fleet_command, ["mine.yaml", *arguments], standalone_mode=False)
    error = ran.exception
    assert error is not None
    assert getattr(error, "exit_code", None) == 2, repr(error)
    return [str(getattr(error, "message", "")), *getattr(error, "faults", ())]


def test_the_good_file_is_simulated(folder):
    ran = CliRunner().invoke(fleet_command, ["mine.yaml"], standalone_mode=False)
    assert str(ran.exception) == "the fleet is simulated"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param("peak: 10", "peak: .nan", "line 14: work.serving[0].load.peak: must be a number", id="no number"),
        pytest.param("peak: 10", "peak: .inf", "line 14: work.serving[0].load.peak: must be a number", id="infinite"),
        pytest.param(
            "Second: 5", "Second: .inf", "line 16: work.serving[0].parts[0].requestsPerSecond: ", id="infinite rate"
        ),
        pytest.param("gpus: 4", "gpus: -4", "line 16: work.serving[0].parts[0].gpus: must not be", id="negative GPUs"),
        pytest.param("replicas: 2}", "replicas: 0}", "line 16: work.serving[0].parts[0].replicas: ", id="no instance"),
        pytest.param("replicas: 1\n", "replicas: 0\n", "line 12: work.serving[0].replicas: must be", id="no replica"),
        pytest.param("Available: 1", "Available: -1", "line 13: work.serving[0].podsAvailable: ", id="budget below 0"),
        pytest.param("1d, racks: 1", "1d, racks: -1", "line 5: cluster.maintenance[0].racks: ", id="racks to drain"),
        pytest.param("priority: 10", "priority: 99999999999", "line 7: teams[0].priority: must be", id="priority"),
        pytest.param('cpu: "64"', "cpu: lots", "line 4: cluster.nodes[0].cpu: 'lots' is not a quantity", id="cpu"),
        pytest.param("name: job", "name: Job_1", "line 18: work.batch[0].name: 'Job_1' is not a name", id="name"),
        pytest.param("name: job", "name: " + "j" * 31, "has 31 characters; at most 30", id="long name"),
        pytest.param(
            "name: decode",
            "name: decode-for-all-of-the-users",
            "have 57 characters; at most 45",
            id="long names together",
        ),
        pytest.param(
            "replicas: 2}\n",
            "replicas: 2}\n    - {name: decode, requestsPerSecond: 5}\n",
            "line 17: work.serving[0].parts[1].name: 'decode' is used twice",
            id="two parts of one name",
        ),
        pytest.param(
            "limit: 24}\n", "limit: 24}\n- {name: chat}\n", "line 8: teams[1].name: 'chat' is used", id="two teams"
        ),
        pytest.param(
            "  maintenance",
            "  - {name: h100}\n  maintenance",
            "line 5: cluster.nodes[1].name: 'h100' is used twice",
            id="two node types",
        ),
        pytest.param("name: job", "name: jobs", "gangs of 'jobs' exist already", id="a batch named like a trace"),
        pytest.param("name: web", "name: job-3", "is the name of a gang of 'job', too", id="a set named like a gang"),
        pytest.param("gpus: 4", "gpus: 16", "an instance of decode has 1 pods of 16 GPUs", id="pod above any node"),
        pytest.param("pods: 2, gpus: 8", "pods: 4, gpus: 8", "team chat may use at most 24 GPUs", id="above a limit"),
        pytest.param(
            "gpus: 4, replicas: 2}",
            "gpus: 8, replicas: 4, minAvailable: 4}",
            "web: its minimum is 32 GPUs; team chat may use at most 24",
            id="a minimum above the limit",
        ),
        pytest.param("lasts: 2d\n", "lasts: 2d\njobs: {}\n", "line 2: jobs: there is no such field", id="own field"),
        pytest.param(
            "lasts: 2d\n", "lasts: 2d\nseed: 1\nlasts: 3d\n", "line 3: the key 'lasts' is written twice", id="twice"
        ),
        pytest.param("lasts: 2d", "lasts: .inf", "line 1: lasts", id="for ever"),
        pytest.param("lasts: 2d", "1: 2", "line 1", id="a key that is a number"),
        pytest.param(
            "lasts: 2d",
            "lasts: 2d\nsettings: {scheduler: {1: 2}}",
            "line 2: settings.scheduler: Expected `str`, got `int`",
            id="a setting that is a number",
        ),
        pytest.param("lasts: 2d", 'title: "\x01"', "line 1: YAML has no character U+0001", id="a control character"),
        pytest.param(
            "lasts: 2d", "settings: &all {operator: *all}", "line 1: the value contains itself", id="an endless value"
        ),
        pytest.param("lasts: 2d", "begins: 2026-01-05", "line 1: begins: must be a time with its zone", id="a date"),
        pytest.param(
            "lasts: 2d", "begins: 2026-01-05 00:00:00", "line 1: begins: must be a time with its zone", id="no zone"
        ),
        pytest.param("lasts: 2d", "lasts: 9999999d", "job: about 239,999,976 gangs arrive", id="for 27,000 years"),
        pytest.param("every: 1h", "every: 1ms", "job: about 172,800,000 gangs arrive", id="every millisecond"),
        pytest.param("pods: 2", "pods: 2.5", "line 18: work.batch[0].pods: must be a whole number", id="half a pod"),
        pytest.param("nodes: 2,", "nodes: 99999999,", "the cluster has 199,999,998 nodes; at most", id="many nodes"),
    ],
)
def test_a_bad_file_is_refused(folder, old, new, fault):
    assert GOOD.count(old) == 1
    (folder / "mine.yaml").write_text(GOOD.replace(old, new))
    assert any(fault in one for one in said()), said()


def test_a_fleet_file_that_is_not_utf_8_is_refused(folder):
    (folder / "mine.yaml").write_bytes(b"lasts: 2d\ntitle: caf\xe9\n")
    assert "line 2: the file is not UTF-8" in said()[1]
    assert "line 2: the file is not UTF-8" in said("--print")[1]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        pytest.param("0,2.7,8,600,chat,5\n", "line 2: pods must be a whole number, not 2.7", id="parts of pods"),
        pytest.param("0,2,8,600,chat,5,9\n", "line 2: the row has 1 columns more than the header", id="long row"),
        pytest.param("0,2,8,600,chat,99999999999\n", "line 2: priority must be at most", id="priority"),
        pytest.param("172800,2,8,600,chat,\n", "line 2: arrival 172800 is after the end", id="after the end"),
        pytest.param("0,2,8,nan,chat,\n", "line 2: duration must be at least 1, not nan", id="no number"),
        pytest.param('0,2,8,600,"chat,\n', "line 2: ", id="an open quotation mark"),
    ],
)
def test_a_bad_row_of_a_trace_is_refused(folder, rows, fault):
    (folder / "jobs.csv").write_text(HEADER + rows)
    assert any(f"line 20: work.traces[0].file: jobs.csv: {fault}" in one for one in said()), said()


def test_every_fault_of_a_trace_is_named_with_its_line(folder):
    (folder / "jobs.csv").write_text(HEADER + "soon,0,8,600,chat,\n0,1,8,600,chat,\n0,1,8,600,nobody,\n\n")
    place = "line 20: work.traces[0].file: jobs.csv: "
    assert said()[1:] == [
        place + "line 2: arrival is not a number: 'soon'",
        place + "line 2: pods must be at least 1, not 0",
        place + "line 4: there is no team 'nobody' (teams: chat)",
    ]


def test_of_many_faults_of_a_trace_the_first_are_named(folder):
    (folder / "jobs.csv").write_text(HEADER + "0,0,8,600,chat,\n" * 50)
    assert len(said()) == 1 + 20 + 1
    assert said()[-1].endswith("30 more faults")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(b"arrival,pods,pods,gpus,duration,team,priority\n", "there are two columns pods", id="twice"),
        pytest.param(b"arrival;pods;gpus\n", "there is no column arrival", id="semicolons"),
        pytest.param(b"", "there is no column arrival", id="empty"),
        pytest.param(JOBS.encode() + b"\xff\xfe", "line 4: the file is not UTF-8", id="not UTF-8"),
    ],
)
def test_a_bad_trace_is_refused(folder, content, fault):
    (folder / "jobs.csv").write_bytes(content)
    assert any(fault in one for one in said()), said()


def test_a_trace_from_a_spreadsheet_is_read(folder):
    """It begins with a byte order mark and its lines end with a carriage return."""
    (folder / "jobs.csv").write_bytes(b"\xef\xbb\xbf" + JOBS.replace("\n", "\r\n").encode())
    ran = CliRunner().invoke(fleet_command, ["mine.yaml"], standalone_mode=False)
    assert str(ran.exception) == "the fleet is simulated"


@pytest.mark.parametrize("option", ["--operator-config", "--scheduler-config"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"- holdAfter: 5m\n", id="a list"),
        pytest.param(b"holdAfter\n", id="a word"),
        pytest.param(b"{holdAfter: [\n", id="not YAML"),
        pytest.param(b"holdAfter: caf\xe9\n", id="not UTF-8"),
        pytest.param(b"colour: red\n", id="an unknown setting"),
    ],
)
def test_a_bad_configuration_is_refused(folder, option, content):
    (folder / "config.yaml").write_bytes(content)
    assert said(option, "config.yaml")[0].startswith("config.yaml")


def test_an_empty_configuration_means_the_defaults(folder):
    (folder / "config.yaml").write_text("# nothing\n")
    ran = CliRunner().invoke(fleet_command, ["mine.yaml", "--scheduler-config", "config.yaml"], standalone_mode=False)
    assert str(ran.exception) == "the fleet is simulated"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        pytest.param(["--json", "missing/out.json"], "there is no folder missing", id="no folder"),
        pytest.param(["--html", "missing/out.html"], "there is no folder missing", id="no folder for the report"),
        pytest.param(["--json", "same", "--html", "same"], "same is named for two outputs", id="one file for both"),
    ],
)
def test_outputs_are_checked_before_the_run(folder, arguments, fault):
    assert fault in said(*arguments)[0]
