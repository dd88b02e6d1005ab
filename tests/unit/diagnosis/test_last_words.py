"""Of the last output of a container, the line that says why it ended is shown."""

from __future__ import annotations

import msgspec
import pytest

from grove.api.core import Pod
from grove.diagnosis.last_words import exit_words, telling_line
from grove.diagnosis.tree import _trouble

LLAMA_SERVER = """\
srv    load_model: loading model '/models/none.gguf'
gguf_init_from_file: failed to open GGUF file '/models/none.gguf' (No such file or directory)
llama_model_load: error loading model: llama_model_loader: failed to load model from /models/none.gguf
llama_model_load_from_file_impl: failed to load model
common_init_from_params: failed to load model '/models/none.gguf'
srv    load_model: failed to load model, '/models/none.gguf'
srv    operator(): operator(): cleaning up before exit...
main: exiting due to model loading error
"""
OPEN_FAILED = "gguf_init_from_file: failed to open GGUF file '/models/none.gguf' (No such file or directory)"
TRACEBACK = """\
(EngineCore pid=71) Traceback (most recent call last):
(EngineCore pid=71)   File "/usr/lib/python3.12/vllm/v1/engine/core.py", line 936, in run
(EngineCore pid=71)     raise ValueError(message)
(EngineCore pid=71) ValueError: Total number of attention heads (128) must be divisible by tensor parallel size (24).
Traceback (most recent call last):
  File "/usr/bin/vllm", line 8, in <module>
    sys.exit(main())
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


@pytest.mark.parametrize(
    ("message", "want"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("cannot open /models/a.gguf\n", "cannot open /models/a.gguf", id="one line"),
        pytest.param(LLAMA_SERVER, OPEN_FAILED, id="llama-server without its model"),
        pytest.param(
            TRACEBACK,
            "(EngineCore pid=71) ValueError: Total number of attention heads (128) must be divisible by tensor "
            "parallel size (24).",
            id="the root cause is above",
        ),
        pytest.param(
            "warning: could not open /proc/x\nloading\nlisten tcp 10.0.0.1:80: bind failed: permission denied\nbye",
            "listen tcp 10.0.0.1:80: bind failed: permission denied",
            id="an earlier fault of something else is not the cause",
        ),
        pytest.param("out of memory: allocation failed\nbye", "out of memory: allocation failed", id="no name"),
        pytest.param("step 1\nstep 2\nbye", "bye", id="no fault: the last line"),
        pytest.param(f"0.00.007.148 E {OPEN_FAILED}\nbye", OPEN_FAILED, id="llama-server's clock"),
        pytest.param("2026-11-19T05:37:41.123Z cannot open a", "cannot open a", id="a date is left out"),
        pytest.param("2026-11-19 05:37:41,123 cannot open a", "cannot open a", id="a date in two words is left out"),
        pytest.param("10.0.0.1:80 refused", "10.0.0.1:80 refused", id="an address is no time"),
        pytest.param("12:00:00", "12:00:00", id="nothing but a time"),
    ],
)
def test_the_telling_line(message: str, want: str) -> None:
    assert telling_line(message) == want


def ended(reason: str, message: str) -> Pod:
    terminated = {"exitCode": 137, "reason": reason, "message": message}
    status = {"name": "engine", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 2}
    statuses = [{**status, "lastState": {"terminated": terminated}}]
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"containerStatuses": statuses}}
    return msgspec.convert(pod, Pod)


def test_the_reason_of_the_kubelet_stays_in_front_of_several_lines() -> None:
    shown = _trouble(ended("OOMKilled", "loading layer 1\nloading layer 2\n"))
    assert shown.endswith("2 restarts: OOMKilled. loading layer 2")


def test_a_container_that_wrote_nothing_shows_the_reason() -> None:
    assert _trouble(ended("OOMKilled", "")).endswith("2 restarts: OOMKilled")


@pytest.mark.parametrize(
    ("code", "reason", "want"),
    [
        pytest.param(1, "Error", "exit code 1", id="an error of the program"),
        pytest.param(139, "Error", "exit code 139 (SIGSEGV)", id="a signal"),
        pytest.param(137, "OOMKilled", "exit code 137", id="a reason that says more than the signal"),
        pytest.param(255, "Error", "exit code 255", id="no signal has this number"),
    ],
)
def test_an_exit_code_names_its_signal(code: int, reason: str, want: str) -> None:
    assert exit_words(code, reason) == want
