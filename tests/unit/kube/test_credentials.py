"""Credentials that change: rotated token files and exec plugins."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from grove.kube.credentials import TOKEN_FILE_AGE_S, Credential, ExecPlugin, TokenFile
from grove.kube.errors import ConfigError
from grove.sim.loop import run

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
V1 = "client.authentication.k8s.io/v1"


def test_a_token_file_is_read_again_every_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")

    async def main() -> list[str]:
        source = TokenFile(file)
        first = await source.current()
        file.write_text("two")
        again = await source.current()
        assert again is first  # the same object: nothing to rebuild
        await asyncio.sleep(TOKEN_FILE_AGE_S)
        later = await source.current()
        file.unlink()
        await asyncio.sleep(TOKEN_FILE_AGE_S)
        kept = await source.current()  # between two files of a rotation the old token still stands
        return [first.token, again.token, later.token, kept.token]

    assert run(main()) == ["one", "one", "two", "two"]


async def test_a_token_file_that_is_missing_or_empty_says_so(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match=f"cannot read the token file {file}: No such file"):
        await TokenFile(file).current()
    file.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        await TokenFile(file).current()


class HandClock:
    def __init__(self) -> None:
        self.moment = NOW

    def now(self) -> datetime:
        return self.moment


class Plugin:
    """A script on disk that prints an ExecCredential and counts its runs."""

    def __init__(self, folder: Path, clock: HandClock) -> None:
        self._folder, self._clock = folder, clock
        self._runs, self._answer, self._seen = folder / "runs", folder / "answer", folder / "seen"
        self.script = folder / "plugin.py"
        self.script.write_text(
            "import os, pathlib, sys\n"
            f"folder = pathlib.Path({str(folder)!r})\n"
            "with (folder / 'runs').open('a') as runs: runs.write('x')\n"
            "(folder / 'seen').write_text(os.environ['KUBERNETES_EXEC_INFO'] + chr(10) + os.environ['REGION'])\n"
            "print((folder / 'answer').read_text())\n"
        )

    def answers(self, *, api_version: str = V1, **status: str) -> None:
        self._answer.write_text(json.dumps({"apiVersion": api_version, "kind": "ExecCredential", "status": status}))

    def source(self, api_version: str = V1) -> ExecPlugin:
        return ExecPlugin(
            [sys.executable, str(self.script)],
            api_version=api_version,
            env={"REGION": "moon"},
            cluster={"server": "https://x"},
            clock=self._clock,
        )

    @property
    def runs(self) -> int:
        return len(self._runs.read_text()) if self._runs.exists() else 0

    @property
    def seen(self) -> tuple[dict[str, object], str]:
        info, region = self._seen.read_text().split("\n")
        return json.loads(info), region


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def plugin(tmp_path: Path, clock: HandClock) -> Plugin:
    return Plugin(tmp_path, clock)


async def test_a_plugin_is_asked_once_until_its_answer_expires(plugin: Plugin, clock: HandClock) -> None:
    plugin.answers(token="t1", expirationTimestamp="2026-01-01T12:10:00Z")
    source = plugin.source()
    found = await asyncio.gather(*(source.current() for _ in range(5)))
    assert {one.token for one in found} == {"t1"}
    assert plugin.runs == 1
    plugin.answers(token="t2")
    clock.moment = NOW + timedelta(minutes=9)
    assert (await source.current()).token == "t1"
    clock.moment = NOW + timedelta(minutes=9, seconds=55)
    assert (await source.current()).token == "t2"
    clock.moment = NOW + timedelta(days=9)
    assert (await source.current()).token == "t2"  # no expiry: good until the server says no
    assert plugin.runs == 2


async def test_a_rejected_answer_is_asked_for_again(plugin: Plugin) -> None:
    plugin.answers(token="t1")
    source = plugin.source()
    await source.current()
    plugin.answers(token="t2")
    assert source.reject()
    assert (await source.current()).token == "t2"


async def test_a_plugin_gets_the_question_that_it_answers(plugin: Plugin) -> None:
    beta = "client.authentication.k8s.io/v1beta1"
    plugin.answers(api_version=beta, clientCertificateData="CERT", clientKeyData="KEY")
    assert await plugin.source(beta).current() == Credential("", b"CERT", b"KEY")
    info, region = plugin.seen
    spec = {"interactive": False, "cluster": {"server": "https://x"}}
    assert info == {"apiVersion": beta, "kind": "ExecCredential", "spec": spec}
    assert region == "moon"


def answer(status: dict[str, str] | None) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        pytest.param("nonsense", "is not an ExecCredential", id="no JSON"),
        pytest.param('{"kind": "Pod", "apiVersion": "v1"}', "got Pod v1", id="another kind"),
        pytest.param(answer(None), "has no status", id="no status"),
        pytest.param(answer({}), "neither a token", id="nothing"),
        pytest.param(answer({"clientCertificateData": "x"}), "come together", id="a certificate without its key"),
    ],
)
async def test_a_plugin_that_answers_nonsense(plugin: Plugin, tmp_path: Path, said: str, words: str) -> None:
    (tmp_path / "answer").write_text(said)
    with pytest.raises(ConfigError, match=words):
        await plugin.source().current()


async def test_a_plugin_that_fails_or_is_not_there(tmp_path: Path) -> None:
    script = [sys.executable, "-c", "import sys; print('warning'); sys.exit('log in\\nfirst')"]
    with pytest.raises(ConfigError, match=r"exit code 1: first$"):
        await ExecPlugin(script, api_version=V1).current()
    missing = ExecPlugin([str(tmp_path / "no")], api_version=V1, install_hint="get it\n  from us")
    with pytest.raises(ConfigError, match=r"cannot run the exec plugin .*No such file or directory; get it from us$"):
        await missing.current()


async def test_a_plugin_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grove.kube.credentials.EXEC_TIMEOUT_S", 0.2)
    source = ExecPlugin([sys.executable, "-c", "import time; time.sleep(60)"], api_version=V1)
    with pytest.raises(ConfigError, match=r"no answer in 0\.2 s"):
        await source.current()


async def test_a_plugin_that_hangs_in_a_program_of_its_own_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrapper script is ended, but the program that it started keeps the pipes open."""
    monkeypatch.setattr("grove.kube.credentials.EXEC_TIMEOUT_S", 0.2)
    over = tmp_path / "over"
    source = ExecPlugin(["sh", "-c", f"sh -c 'while [ ! -e {over} ]; do sleep 0.1; done'; true"], api_version=V1)
    try:
        async with asyncio.timeout(60):
            with pytest.raises(ConfigError, match=r"no answer in 0\.2 s"):
                await source.current()
    finally:
        over.touch()
