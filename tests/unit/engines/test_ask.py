"""The check and the load generator of samples/engines: an answer counts only if it is whole and of the right model."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ENGINES = Path(__file__).parents[3] / "samples" / "engines"


class Engine(BaseHTTPRequestHandler):
    """Answers as its path says; counts the requests."""

    asked = 0

    def do_POST(self) -> None:
        kind, _, rest = self.path.removeprefix("/").partition("/")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Engine.asked += 1
        if kind == "failing" or (kind == "every-third" and Engine.asked % 3 == 0):
            self.send_error(503)
            return
        text = f"words {Engine.asked}" if kind == "changing" else "words"
        choice = {"message": {"content": text}} if rest.endswith("chat/completions") else {"text": text}
        tokens = 3 if kind == "short" else body["max_tokens"]
        model = "other" if kind == "other" else body["model"]
        answer = json.dumps({"model": model, "choices": [choice], "usage": {"completion_tokens": tokens}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    thread.join()
    found.server_close()


def ran(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ENGINES / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        pytest.param("good", [], "answered  'words'", id="an answer"),
        pytest.param("good", ["--chat"], "answered  'words'", id="an answer of the chat API"),
        pytest.param("good", ["--repeat", "3"], "answered  'words'", id="equal answers"),
        pytest.param("changing", ["--repeat", "2"], "the answers differ", id="different answers"),
        pytest.param("short", [], "16 tokens were asked for, and 3 came", id="too few tokens"),
        pytest.param("other", [], "the model 'other' answered, not 'tiny'", id="another model"),
        pytest.param("failing", [], "HTTP 503", id="an error"),
    ],
)
def test_the_check_looks_at_the_answer(server: str, kind: str, options: list[str], says: str) -> None:
    done = ran("ask.py", f"{server}/{kind}", "--model", "tiny", *options)
    assert says in done.stdout + done.stderr
    assert done.returncode == (0 if kind == "good" else 1), done.stderr


def test_a_server_that_is_not_there_is_no_answer() -> None:
    assert ran("ask.py", "http://127.0.0.1:1", "--model", "tiny").returncode == 1


def test_the_load_counts_every_request(server: str) -> None:
    options = ("--model", "tiny", "--clients", "3", "--seconds", "1")
    counts = json.loads(ran("load.py", f"{server}/every-third", *options).stdout)
    assert counts["sent"] == counts["answered"] + counts["failed"]
    assert counts["answered"] > 0
    assert counts["failed"] > 0
    assert sum(counts["reasons"].values()) == counts["failed"]
    assert all(reason.startswith("HTTP 503") for reason in counts["reasons"])


def test_during_an_update_either_model_may_answer(server: str) -> None:
    options = ("--model", "tiny", "--model", "other", "--clients", "1", "--seconds", "1")
    counts = json.loads(ran("load.py", f"{server}/other", *options).stdout)
    assert counts["failed"] == 0
    assert counts["answered"] > 0
