"""The command line itself: names, help, exit codes, and one clear line when something is wrong."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.waiting import HANGS_S

from grove.answers.answer import object_name
from grove.cli.access import NO_LIMIT_S, Timeout, formatted
from grove.cli.main import ASKING, COMMANDS

ROOT = Path(__file__).parents[3]


def grove(*args: str, module: str = "grove", **env: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")}
    return subprocess.run(
        [sys.executable, "-m", module, *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
        env={**clean, "PYTHONPATH": str(ROOT / "src"), "HOME": "/nonexistent", **env},
    )


@pytest.mark.parametrize("name", sorted({**COMMANDS, **ASKING}))
def test_every_command_exists_and_has_help(name: str) -> None:
    found = grove(name, "--help") if name != "startup" else grove("--help")
    assert found.returncode == 0
    assert found.stdout.startswith("Usage: grove")


def test_kubectl_grove_offers_the_questions_only() -> None:
    found = grove("--help", module="grove.cli.kubectl")
    assert found.stdout.startswith("Usage: kubectl grove [OPTIONS] COMMAND")
    assert all(f"  {name} " in found.stdout for name in ASKING)
    assert "  operator " not in found.stdout


@pytest.mark.parametrize("command", [*ASKING, "up", "down", "demo", "simulate"])
def test_help_is_quick(command: str) -> None:
    """What takes long to import is imported by what needs it only."""
    said = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "grove", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in said.stderr.splitlines()}
    assert imported & {"aiohttp", "cryptography", "msgspec", "numpy", "prometheus_client", "rich", "yaml"} == set()


def test_the_transport_is_loaded_without_reading_the_authorities_of_the_machine() -> None:
    """aiohttp makes a TLS context while it is imported; with all authorities that takes 60 ms of every command."""
    code = (
        "from grove.cli.access import _load_transport; _load_transport(); import sys, os;"
        "made = sys.modules['aiohttp.connector']._SSL_CONTEXT_VERIFIED;"
        "print(len(made.get_ca_certs()), 'SSL_CERT_FILE' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
    )
    assert loaded.stdout == "0 False\n"


def test_what_judges_a_set_does_not_bring_the_solver_along() -> None:
    modules = (
        "grove.answers.judged, grove.diagnosis.verdict, grove.show.paint, grove.diagnosis.rollouts, grove.show.timeline"
    )
    found = subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; print(sorted({{'numpy', 'aiohttp'}} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("args", "code", "line"),
    [
        pytest.param(["tree", "chat"], 2, "error: ", id="no cluster at all"),
        pytest.param(["tree", "chat", "--kubeconfig", "/nonexistent/config"], 2, "error: ", id="no such kubeconfig"),
        pytest.param(["tree"], 2, "error: Missing argument 'PCS'. (see grove tree --help)\n", id="a missing argument"),
        pytest.param(["dance"], 2, "error: No such command 'dance'. (see grove --help)\n", id="an unknown command"),
        pytest.param(["plan"], 2, "error: give manifests (-f), or --scale, or --drain", id="nothing to plan"),
        pytest.param(
            ["scale", "chat", "many"],
            2,
            "error: replicas must be a whole number, 0 or more, not many",
            id="not a number",
        ),
        pytest.param(["convert", "/dev/null"], 2, "error: /dev/null: there is nothing in it to convert", id="nothing"),
        pytest.param(
            ["status", "--request-timeout", "soon"], 2, "error: Invalid value for '--request-timeout': ", id="no time"
        ),
        pytest.param(
            ["status", "--request-timeout", "-1s"],
            2,
            "error: Invalid value for '--request-timeout': ",
            id="less than no time",
        ),
        pytest.param(["demo", "--scenario", "pyproject.toml"], 2, "error: pyproject.toml: ", id="no scenario"),
    ],
)
def test_what_is_wrong_is_reported_without_a_traceback(args: list[str], code: int, line: str) -> None:
    found = grove(*args)
    assert found.returncode == code
    assert found.stderr.startswith(line)
    assert found.stderr.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {}}], "
        "contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    found = grove("status", "--kubeconfig", str(config))
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1
    assert "127.0.0.1:9" in found.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str) -> None:
    found = grove("completion", shell)
    assert "_GROVE_COMPLETE" in found.stdout
    assert found.returncode == 0


def test_a_shell_completes_the_names_of_commands() -> None:
    found = grove(_GROVE_COMPLETE="bash_complete", COMP_WORDS="grove topo", COMP_CWORD="1")
    assert found.stdout == "plain,topology\n"


def test_kubectl_is_answered_in_its_own_form(tmp_path: Path) -> None:
    (tmp_path / "grove").write_text(f'#!/bin/sh\nexec {sys.executable} -m grove "$@"\n')
    script = tmp_path / "kubectl_complete-grove"
    script.write_text(grove("completion", "kubectl").stdout)
    for file in (script, tmp_path / "grove"):
        file.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run([str(script), "sca"], capture_output=True, text=True, check=False, env=env)
    assert found.stdout == "scale\nscaleref\n:4\n"


def test_a_pipe_that_is_closed_early_ends_it_quietly() -> None:
    script = f"{sys.executable} -m grove demo | true; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert found.stdout.splitlines()[-1] == "141"
    assert found.stderr == ""


def _read(terminal: int, until: bytes = b"", timeout_s: float = 300.0) -> bytes:
    """What a program writes to its terminal, up to some words or else to its end."""
    text, deadline = b"", time.monotonic() + timeout_s
    while not until or until not in text:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(text[-2000:].decode(errors="replace"))
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break  # the other end is closed
        if not chunk:
            break
        text += chunk
    return text


@pytest.mark.parametrize("more", [["--speed", "1"], ["--speed", "50", "--keep"]], ids=["half way", "kept up"])
def test_ctrl_c_gives_the_terminal_back(more: list[str]) -> None:
    """On a terminal of its own: exit code 130 in the middle of the story, 0 for a demo that was kept up."""
    pid, terminal = pty.fork()
    if pid == 0:
        # A run in the background hands down an ignored SIGINT, and no terminal undoes that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ |= {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"}
        os.execv(sys.executable, [sys.executable, "-m", "grove", "demo", *more])
    try:
        wanted = b"staying up" if "--keep" in more else b"is placed whole"
        text = _read(terminal, wanted)
        os.write(terminal, b"\x03")
        text += _read(terminal)
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == (0 if "--keep" in more else 130)
    assert b"Traceback" not in text
    assert text.rindex(b"\x1b[?25h") > text.rindex(b"\x1b[?25l")  # the cursor is there again


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("chat", "chat", id="a name"),
        pytest.param("pcs/chat", "chat", id="kubectl's short name"),
        pytest.param("podcliqueset.grove.io/chat", "chat", id="kubectl's long name"),
        pytest.param("chat/prefill", "chat/prefill", id="a part of a set"),
    ],
)
def test_object_name(text: str, want: str) -> None:
    assert object_name(text) == want


def test_json_is_spelled_as_kubernetes_spells() -> None:
    assert formatted({"waits_for": [{"can_start": True}], "a/b_c": 1}, "json") == (
        '{\n  "waitsFor": [\n    {\n      "canStart": true\n    }\n  ],\n  "a/bC": 1\n}\n'
    )


@pytest.mark.parametrize(
    ("said", "want"),
    [("10s", 10.0), ("1m30s", 90.0), ("5", 5.0), ("0.5", 0.5), ("0", NO_LIMIT_S), ("0s", NO_LIMIT_S)],
)
def test_a_timeout_is_taken_as_kubectl_takes_it(said: str, want: float) -> None:
    assert Timeout().convert(said, None, None) == want


WAYS_TO_ASK = (["status"], ["status", "-w"], ["doctor"], ["logs", "x"], ["plan", "--scale", "x=2"], ["scale", "x", "2"])


def test_a_cluster_that_does_not_answer_is_one_line_whatever_is_asked(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    dead.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"
        'clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]\n'
    )
    want = (
        "error: cannot reach https://127.0.0.1:1: Connection refused; if it is the cluster of `grove up`, that starts "
        "it again\n"
    )
    for args in WAYS_TO_ASK:
        found = grove(*args, KUBECONFIG=str(dead))
        assert (found.returncode, found.stdout, found.stderr) == (2, "", want), args


def test_without_a_kubeconfig_the_cluster_of_grove_up_is_offered_while_it_is_there(tmp_path: Path) -> None:
    offered = f"; `grove up` has one: export KUBECONFIG={tmp_path}/.grove/local/kubeconfig\n"
    assert not grove("status", HOME=str(tmp_path)).stderr.endswith(offered)
    state = tmp_path / ".grove" / "local" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    found = grove("status", HOME=str(tmp_path))
    assert found.returncode == 2
    assert found.stderr.startswith("error: no cluster: ")
    assert found.stderr.endswith(offered)
