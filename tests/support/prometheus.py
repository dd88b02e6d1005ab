"""A real Prometheus that has samples of the past.

Needs the programs `prometheus` and `promtool` (Debian package prometheus) on the PATH, or in the folder that
GROVE_PROMETHEUS names.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest


def program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("GROVE_PROMETHEUS") or None)
    if found is None:
        pytest.skip(
            f"{name} is not here: install the Debian package prometheus, or name its folder in GROVE_PROMETHEUS"
        )
    return found


@contextmanager
def prometheus(directory: Path, samples: str) -> Iterator[str]:
    """Its address. `samples` is text in the format of OpenMetrics, each line with its time, one series at a time."""
    (directory / "samples.om").write_text(samples)
    data = directory / "data"
    subprocess.run(
        [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", directory / "samples.om", data],
        check=True,
        capture_output=True,
    )
    (directory / "prometheus.yml").write_text("scrape_configs: []\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 60
        while not _is_ready(address):
            assert time.monotonic() < until, "Prometheus does not start"
            time.sleep(0.2)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
