"""Processes: signals, exit codes, probes. Each story is a small program of its own."""

import asyncio
import json
import logging
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from grove.kube import metrics
from grove.kube.logs import configure_logs
from grove.kube.run import STOP_S, loop_factory, probes
from grove.local.pki import Authority

SRC = Path(__file__).parents[3] / "src"


LONG_S = 60.0
"""A limit for what is waited for; the machine may be busy with something else."""


@contextmanager
def program(body: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `async def main()` of the given source and prints `ready` when it says so."""
    source = "import asyncio, functools, sys\nfrom grove.kube.run import run_process\n" + textwrap.dedent(body)
    source += "\nsys.exit(run_process(main))\n"
    child = subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def until_ready(child: subprocess.Popen[str]) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_work_and_the_process_with_0(number: signal.Signals) -> None:
    body = """
        from grove.kube.logs import configure_logs
        configure_logs("info", "json")

        async def main():
            print("ready", flush=True)
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.1)
                print("cleaned up", flush=True)
    """
    with program(body) as child:
        until_ready(child)
        child.send_signal(number)
        out, _ = child.communicate(timeout=LONG_S)
        assert (child.returncode, out) == (0, "cleaned up\n")


def test_work_that_will_not_stop_is_left_behind() -> None:
    body = """
        run_process = functools.partial(run_process, stop_s=0.1)
        async def main():
            print("ready", flush=True)
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
    """
    with program(body) as child:
        until_ready(child)
        child.terminate()
        assert child.wait(timeout=LONG_S) == 0
    assert STOP_S < 5, "which is promised to whoever drains a node"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        pytest.param("async def main(): pass", 0, "", id="work that ends is done"),
        pytest.param(
            "from grove.kube.errors import ConfigError\nasync def main(): raise ConfigError('no such file: x')",
            2,
            "error: no such file: x\n",
            id="a cluster that cannot be used is one line and 2",
        ),
        pytest.param(
            "from grove.kube.errors import Forbidden\n"
            "async def fail(): raise Forbidden('pods is forbidden')\n"
            "async def main():\n"
            "    async with asyncio.TaskGroup() as group: group.create_task(fail())",
            2,
            "error: pods is forbidden\n",
            id="also out of a group of tasks",
        ),
        pytest.param("async def main(): raise RuntimeError('bug')", 1, "RuntimeError: bug", id="a bug shows where"),
        pytest.param(
            "from grove.kube.lease import LeadershipLost\nasync def main(): raise LeadershipLost('gone')",
            1,
            "leadership lost",
            id="a lost lease is 1",
        ),
    ],
)
def test_exit_codes(body: str, code: int, words: str) -> None:
    with program(body) as child:
        out, errors = child.communicate(timeout=LONG_S)
        assert child.returncode == code
        if code == 2:
            assert errors == words
        else:
            assert words in errors + out


async def test_probes_and_metrics() -> None:
    ready = False
    async with probes(0, ready=lambda: ready, host="127.0.0.1") as port, aiohttp.ClientSession() as session:

        async def ask(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as got:
                return got.status, await got.text()

        assert await ask("/healthz") == (200, "ok\n")
        assert await ask("/readyz") == (503, "not yet\n")
        ready = True
        assert await ask("/readyz") == (200, "ok\n")
        code, text = await ask("/metrics")
        assert code == 200
        assert f"# HELP workqueue_depth {metrics.DEPTH._documentation}" in text


LOG = """
    import structlog
    from grove.kube.logs import configure_logs
    configure_logs("info", {format!r})
    log = structlog.get_logger("test").bind(controller="podclique")

    async def main():
        log.debug("looked and did nothing")
        log.info("pods created", count=4, key=("ns", "a"))
        import logging
        logging.getLogger("aiohttp").warning("from a %s", "library")
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("reconcile failed")
"""


def test_logs_as_json_are_one_object_a_line() -> None:
    with program(LOG.format(format="json")) as child:
        out, errors = child.communicate(timeout=LONG_S)
    assert out == ""
    first, library, failed = (json.loads(line) for line in errors.splitlines())
    assert {k: v for k, v in first.items() if k != "timestamp"} == {
        "level": "info",
        "msg": "pods created",
        "controller": "podclique",
        "count": 4,
        "key": ["ns", "a"],
    }
    assert (library["level"], library["msg"]) == ("warning", "from a library")
    assert "ZeroDivisionError" in failed["exception"]


def test_logs_as_text_are_for_people() -> None:
    with program(LOG.format(format="text")) as child:
        _, errors = child.communicate(timeout=LONG_S)
    assert "pods created" in errors
    assert "count=4" in errors
    assert "looked and did nothing" not in errors


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="not one of debug, info, warning, error"):
        configure_logs("loud")


def test_the_loops_clock_moves_while_a_callback_runs() -> None:
    """What guards a paused leader's writes reads it; uvloop's own clock stands still until the next turn."""
    body = """
        import time
        async def main():
            loop = asyncio.get_running_loop()
            began = loop.time()
            time.sleep(0.2)
            print(f"{loop.time() - began:.4f}")
            await asyncio.sleep(0.1)
            print(f"{loop.time() - began:.4f}")
    """
    with program(body) as child:
        out, _ = child.communicate(timeout=LONG_S)
        inside, later = (float(word) for word in out.split())
        assert inside >= 0.2
        assert later >= inside + 0.09  # the timer's resolution is a millisecond


@contextmanager
def one_handshake(authority: Authority, folder: Path) -> Iterator[int]:
    """A server in a thread that accepts one TLS connection; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("server", ("127.0.0.1",)).write(folder, "server"))

    def accept() -> None:
        with suppress(OSError), listener.accept()[0] as accepted:
            context.wrap_socket(accepted, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(LONG_S)


def test_a_connection_given_up_in_its_handshake_is_not_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """uvloop writes the end of the handshake to a socket that is closed by then.

    It happens when a busy loop starts a handshake and reads its end in one turn, and the task is cancelled in it.
    """
    authority = Authority("test-ca")
    trusted = ssl.create_default_context(cadata=authority.pair.certificate.decode())

    async def give_up_when_connected(port: int) -> None:
        connected = asyncio.Event()

        class GivesUp(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connected.set()
                connecting.cancel()

        def keep_the_loop_busy_until_the_server_answers() -> None:
            assert select.select([opened], [], [], LONG_S)[0]

        loop = asyncio.get_running_loop()
        opened = socket.create_connection(("127.0.0.1", port))
        connecting = loop.create_task(
            loop.create_connection(GivesUp, sock=opened, ssl=trusted, server_hostname="127.0.0.1")
        )
        await asyncio.sleep(0)
        loop.call_soon(keep_the_loop_busy_until_the_server_answers)
        await asyncio.wait((connecting,))
        assert connected.is_set()
        await asyncio.sleep(0)

    with one_handshake(authority, tmp_path) as port, asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(give_up_when_connected(port))
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_loop_reports_every_other_error(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(fail())
    assert "no number" in caplog.text


async def test_nothing_is_left_running() -> None:
    before = asyncio.all_tasks()
    async with probes(0, ready=lambda: True, host="127.0.0.1"):
        pass
    assert asyncio.all_tasks() == before
