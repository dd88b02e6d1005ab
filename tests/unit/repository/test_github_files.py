"""The files in .github can be read, and the release workflow publishes every file under a name of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools import krew
from tools.version import current

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / ".github").rglob("*.y*ml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yaml"

STUBS = {
    "make": """\
folder=dist; test "$2" = ARCH=arm64 && folder=dist/arm64
if test "$1" = image; then
  mkdir -p $folder
  for image in grove grove-initc; do for kind in tar spdx.json; do echo $folder > $folder/$image.$kind; done; done
fi
""",
    "helm": "touch release/grove-1.0.0.tgz release/grove-inference-1.0.0.tgz\n",
    "gh": 'shift 7; printf "%s\\n" "$@" > published\n',
}
"""Programs that write the files that the real ones write."""

PYTHON = f"""\
case "$*" in
  *tools.krew*) mkdir -p dist/krew; touch dist/krew/{krew.archive_name("amd64")} dist/krew/{krew.NAME}.yaml;;
  *build_wheel*) touch release/grove_k8s-1.0.0-py3-none-any.whl release/grove_k8s-1.0.0.tar.gz;;
  tools/version.py) echo {current()};;
esac
"""


def workflow(path: Path) -> dict[Any, Any]:
    loaded = yaml.safe_load(path.read_text())
    assert isinstance(loaded, dict)
    return loaded


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def run_steps(folder: Path, without: str = "") -> subprocess.CompletedProcess[str] | None:
    """Runs the steps as GitHub does, with `bash -e`, until one fails. `without` is a file that no program writes."""
    programs = folder / "programs"
    for name, text in STUBS.items():
        program(programs / name, text + (f"rm -f {without}\n" if without else ""))
    program(programs / "python", PYTHON)
    program(folder / ".venv" / "bin" / "python", PYTHON)
    shutil.copy(ROOT / "CHANGELOG.md", folder)
    (folder / "charts").mkdir()
    for name in ("install", "grove-crds", "grove-scheduler"):
        (folder / "charts" / f"{name}.yaml").touch()
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GITHUB_REF_NAME": f"v{current()}",
        "GITHUB_REPOSITORY": "example/grove",
    }
    for step in workflow(RELEASE)["jobs"]["release"]["steps"]:
        if "run" in step:
            command = ["bash", "-e", "-c", step["run"]]
            ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if ended.returncode:
                return ended
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_yaml_for_the_strictest_loader(path: Path) -> None:
    """The loader of PyYAML that is written in Python refuses a `?` in a flow mapping; the one in C may not."""
    assert workflow(path)


def test_a_release_publishes_every_file_under_a_name_of_its_own(tmp_path: Path) -> None:
    assert run_steps(tmp_path) is None
    assert (tmp_path / "published").read_text().split() == [
        "release/grove-1.0.0.tgz",
        "release/grove-amd64.spdx.json",
        "release/grove-amd64.tar",
        "release/grove-arm64.spdx.json",
        "release/grove-arm64.tar",
        "release/grove-crds.yaml",
        "release/grove-inference-1.0.0.tgz",
        "release/grove-initc-amd64.spdx.json",
        "release/grove-initc-amd64.tar",
        "release/grove-initc-arm64.spdx.json",
        "release/grove-initc-arm64.tar",
        "release/grove-scheduler.yaml",
        "release/grove_k8s-1.0.0-py3-none-any.whl",
        "release/grove_k8s-1.0.0.tar.gz",
        "release/install.yaml",
        "release/krew-grove.yaml",
        "release/kubectl-grove-linux-amd64.tar.gz",
    ]
    assert (tmp_path / "release/grove-amd64.spdx.json").read_text() == "dist\n"
    assert (tmp_path / "release/grove-arm64.spdx.json").read_text() == "dist/arm64\n"
    assert (tmp_path / "build/notes.md").read_text().strip()


@pytest.mark.parametrize("name", ["dist/grove.spdx.json", "dist/arm64/grove-initc.spdx.json", "dist/arm64/grove.tar"])
def test_no_release_without_an_image_or_its_list_of_contents(tmp_path: Path, name: str) -> None:
    ended = run_steps(tmp_path, without=name)
    assert ended is not None
    assert name in ended.stderr
    assert not (tmp_path / "published").exists()


def test_the_names_in_the_workflow_are_those_that_the_tools_write() -> None:
    image = (ROOT / "tools" / "image" / "__main__.py").read_text()
    assert re.findall(r'yield Contents\("([\w-]+)"', image) == ["grove", "grove-initc"]
    assert 'f"{self.name}.tar"' in image
    assert 'f"{self.name}.spdx.json"' in image


def test_all_tests_pass_before_a_release() -> None:
    jobs = workflow(RELEASE)["jobs"]
    assert jobs["release"]["needs"] == "test"
    assert (RELEASE.parents[2] / jobs["test"]["uses"]).is_file()
    # YAML reads the key `on` as a boolean.
    assert "workflow_call" in workflow(RELEASE.parent / "test.yaml")[True]
