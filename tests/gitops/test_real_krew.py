"""The program krew installs `kubectl grove` from our manifest and archive, and it runs: `make test-gitops`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tools.version import ROOT, current

from tests.gitops.build import KREW

pytestmark = pytest.mark.soak

BASE = "https://example.com/grove/releases/download/v1"
Krew = Callable[..., str]


@pytest.fixture(scope="module")
def built() -> tuple[Path, Path]:
    """The manifest and the archive that `python -m tools.krew` makes."""
    subprocess.run([sys.executable, "-m", "tools.krew", BASE], cwd=ROOT, check=True)
    (archive,) = (ROOT / "dist/krew").glob("*.tar.gz")
    return ROOT / "dist/krew/grove.yaml", archive


@pytest.fixture
def krew(tmp_path: Path) -> Krew:
    if not KREW.is_built:
        pytest.skip(f"krew is not in {KREW.directory}; `make test-gitops` builds it")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [str(KREW.directory / "krew"), *arguments],
            env={**os.environ, "KREW_ROOT": str(tmp_path), "KREW_NO_UPGRADE_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_the_plugin_is_installed_and_runs(krew: Krew, built: tuple[Path, Path], tmp_path: Path) -> None:
    manifest, archive = built
    said = krew("install", f"--manifest={manifest}", f"--archive={archive}")
    assert "Installed plugin: grove" in said
    assert "This plugin needs python3." in said

    plugin = tmp_path / "bin/kubectl-grove"
    done = subprocess.run([str(plugin), "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "kubectl grove" in done.stdout
    receipt = tmp_path / "receipts/grove.yaml"
    assert yaml.safe_load(receipt.read_text())["spec"]["version"] == f"v{current()}"


def test_another_archive_is_refused(krew: Krew, built: tuple[Path, Path], tmp_path: Path) -> None:
    manifest, archive = built
    changed = yaml.safe_load(manifest.read_text())
    changed["spec"]["platforms"][0]["sha256"] = "0" * 64
    file = tmp_path / "grove.yaml"
    file.write_text(yaml.safe_dump(changed))
    with pytest.raises(AssertionError, match="checksum"):
        krew("install", f"--manifest={file}", f"--archive={archive}")
