"""The wheel and the source archive: what people install with pip has every command and every file that it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from grove import __version__

ROOT = Path(__file__).resolve().parents[2]
DEMO_S = 600


def build(kind: str, target: Path) -> Path:
    """Builds a wheel or a source archive from the checkout, without a network."""
    source = target / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(target)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True, text=True)
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of an environment that has the wheel. Its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build("wheel", folder)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        f"--python={python}",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(pip, check=True)
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [str(folder / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        timeout=DEMO_S,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_both_commands(installed: Path) -> None:
    where = run(installed, "python", "-c", "import grove; print(grove.__file__)")
    assert str(installed.parent) in where, "the checkout is tested instead of the wheel"
    assert run(installed, "grove", "version").split() == ["grove", __version__]
    assert "tree" in run(installed, "kubectl-grove", "--help")


def test_the_wheel_has_the_files_that_commands_read(installed: Path) -> None:
    assert "podcliquesets.grove.io" in run(installed, "grove", "crds")
    assert "lab" in run(installed, "grove", "fleet", "--list")


def test_the_demo_of_the_wheel_plays_to_its_end(installed: Path) -> None:
    assert "chat" in run(installed, "grove", "demo", "--speed", "0")


def test_the_source_archive_has_all_that_is_needed_to_build(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "src/grove/__init__.py", "src/grove/py.typed"} <= names
