"""The krew plugin: its manifest by the rules that krew's own validation has, and the launcher in its archive."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tools import krew
from tools.version import ROOT, current

import grove

BASE = "https://example.com/grove/releases/download/v1"
SUMS = {"amd64": hashlib.sha256(b"a").hexdigest(), "arm64": hashlib.sha256(b"b").hexdigest()}


def faults(plugin: dict[str, Any]) -> list[str]:
    """What krew's validation of a Plugin refuses (its internal/index/validation), and its limit for descriptions."""
    spec, found = plugin["spec"], []
    if (plugin["apiVersion"], plugin["kind"]) != ("krew.googlecontainertools.github.com/v1alpha2", "Plugin"):
        found.append("kind")
    if not re.fullmatch(r"[\w-]+", plugin["metadata"]["name"]):
        found.append("name")
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"]):
        found.append("version")
    if not 0 < len(spec["shortDescription"]) <= 50 or re.search(r"[\r\n]", spec["shortDescription"]):
        found.append("shortDescription")
    for one in spec["platforms"]:
        if not one["uri"].startswith("https://") or not re.fullmatch(r"[a-f0-9]{64}", one["sha256"]) or not one["bin"]:
            found.append("platform")
        if not one["selector"]["matchLabels"] or set(one["selector"]["matchLabels"]) - {"os", "arch"}:
            found.append("selector")
    return found if spec["platforms"] else [*found, "platforms"]


def test_the_manifest_follows_krews_rules() -> None:
    plugin = krew.manifest(current(), f"{BASE}/", SUMS, "https://example.com/grove")
    assert faults(plugin) == []
    assert [one["uri"] for one in plugin["spec"]["platforms"]] == [
        f"{BASE}/kubectl-grove-linux-amd64.tar.gz",
        f"{BASE}/kubectl-grove-linux-arm64.tar.gz",
    ]


@pytest.mark.parametrize(
    ("version", "sums", "wrong"),
    [
        pytest.param("1.0", SUMS, ["version"], id="no semantic version"),
        pytest.param("1.0.0", {"amd64": "abc"}, ["platform"], id="no sum"),
        pytest.param("1.0.0", {}, ["platforms"], id="no platform"),
    ],
)
def test_the_rules_refuse_what_is_wrong(version: str, sums: dict[str, str], wrong: list[str]) -> None:
    assert faults(krew.manifest(version, BASE, sums, BASE)) == wrong


def test_the_archive_is_reproducible_and_its_launcher_runs_through_a_link(tmp_path: Path) -> None:
    lib, unpacked = tmp_path / "lib", tmp_path / "unpacked"
    shutil.copytree(ROOT / "src" / "grove", lib / "grove", ignore=shutil.ignore_patterns("__pycache__"))
    content = krew.archive(lib)
    assert content == krew.archive(lib)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        tar.extractall(unpacked, filter="data")
    link, programs = tmp_path / "kubectl-grove", tmp_path / "programs"
    link.symlink_to(unpacked / krew.BIN)
    programs.mkdir()
    (programs / krew.PYTHON).symlink_to(sys.executable)
    # The dependencies are those of this test; the real archive brings its own.
    path = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": sysconfig.get_path("purelib")}
    found = subprocess.run([link, "--version"], capture_output=True, text=True, env=path, check=False)
    assert (found.returncode, grove.__version__ in found.stdout) == (0, True), found.stderr


def test_an_address_without_https_is_refused() -> None:
    with pytest.raises(SystemExit, match="must begin with https://"):
        krew.main("http://example.com/a")
