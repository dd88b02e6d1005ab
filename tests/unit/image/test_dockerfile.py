"""The Dockerfile and `make image` give the same images: the same files, by the same program, run in the same way."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.image import __main__ as image

from grove.local.oci import Tree, full_name

DOCKERFILE = (Path(__file__).parents[3] / "Dockerfile").read_text()


def stage(name: str) -> dict[str, str]:
    """The instructions of a stage; the last of each kind."""
    (text,) = re.findall(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.split()[0]: line.partition(" ")[2] for line in lines}


@pytest.mark.parametrize(
    ("name", "folder", "settings"),
    [
        pytest.param("grove", "grove", image.MAIN, id="grove"),
        pytest.param("initc", "grove-initc", image.STARTUP, id="grove-initc"),
    ],
)
def test_a_stage_is_a_folder_of_the_program_and_is_run_as_the_archive_is(
    name: str, folder: str, settings: dict[str, Any]
) -> None:
    said = stage(name)
    assert said.pop("COPY") == f"--from=build /roots/{folder} /"
    assert said.pop("ENV").split() == settings["Env"]
    assert dict(one.split("=") for one in said.pop("LABEL").split()) == settings["Labels"]
    assert (said.pop("USER"), said.pop("WORKDIR")) == (settings["User"], settings["WorkingDir"])
    assert json.loads(said.pop("ENTRYPOINT")) == settings["Entrypoint"]
    assert json.loads(said.pop("CMD", "[]")) == settings.get("Cmd", [])
    assert said == {}, "nothing else is done to it"


def test_the_build_stage_calls_the_program_with_all_it_reads() -> None:
    said = [line for line in DOCKERFILE.splitlines() if line.startswith(("COPY", "RUN python"))]
    assert "RUN python3.11 tools/image roots --target /roots --cache /cache ${OTEL:+--otel}" in said
    assert {"COPY requirements requirements", "COPY tools/image tools/image", "COPY src src"} <= set(said)


def test_unpacked_and_packed_are_the_same_files(tmp_path: Path) -> None:
    tree = Tree()
    tree.add("opt/grove/a.py", b"a", 0o644)
    tree.add("usr/bin/python3.11", b"\x7fELF", 0o755)
    tree.links["usr/bin/python3"] = "python3.11"
    tree.folders["tmp"] = 0o1777
    image.Contents("one", [tree], {}, []).unpack(tmp_path)
    root = tmp_path / "one"
    assert (root / "opt/grove/a.py").read_bytes() == b"a"
    assert os.readlink(root / "usr/bin/python3") == "python3.11"
    modes = {path: (root / path).stat().st_mode & 0o7777 for path in ("opt/grove/a.py", "usr/bin/python3.11", "tmp")}
    assert modes == {"opt/grove/a.py": 0o644, "usr/bin/python3.11": 0o755, "tmp": 0o1777}


def test_without_git_the_sources_are_those_of_a_clean_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a Docker build, which does not get the repository's history."""
    known = Tree()
    image.sources(known)
    copy = tmp_path / "copy"
    for path in known.files:
        inside = Path("src") / Path(path).relative_to(image.HOME)
        (copy / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image.ROOT / inside, copy / inside)
    (copy / "src/grove/__pycache__").mkdir()
    (copy / "src/grove/__pycache__/x.pyc").touch()
    monkeypatch.setattr(image, "ROOT", copy)
    found = Tree()
    image.sources(found)
    assert found.files == known.files


def test_the_init_image_runs_with_the_one_package_it_has(tmp_path: Path) -> None:
    tree = Tree()
    image.sources(tree, "startup")
    tree.unpack(tmp_path)
    # -S: without site-packages, as in the image.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "grove.startup", "--podcliques=web-0-router:1"],
        cwd="/",
        env={"PYTHONPATH": str(tmp_path / image.HOME)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "grove startup: cannot read /var/grove/pod-info/namespace: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("short", "full"),
    [
        pytest.param("grove:1", "docker.io/library/grove:1", id="a bare name"),
        pytest.param("team/grove:1", "docker.io/team/grove:1", id="a name with an owner"),
        pytest.param("registry.example/grove:1", "registry.example/grove:1", id="a registry"),
        pytest.param("localhost/grove:1", "localhost/grove:1", id="this machine"),
        pytest.param("registry:5000/grove:1", "registry:5000/grove:1", id="a registry by its port"),
    ],
)
def test_a_kubelet_finds_an_imported_image_by_its_full_name(short: str, full: str) -> None:
    assert full_name(short) == full
