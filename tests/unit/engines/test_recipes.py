"""The recipes of samples/engines: what they name exists, and an image is a function of its recipe."""

from __future__ import annotations

import io
import json
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tools.engines import __main__ as command
from tools.engines import assemble, llama, models
from tools.engines.assemble import LOCK, accounts, packages, settings, write_image
from tools.engines.recipe import SAMPLES, Recipe, with_image
from tools.image.sources import Missing, locked

FOLDERS = sorted(one.parent.name for one in SAMPLES.glob("*/manifest.yaml"))
WITH_IMAGE = with_image()


def recipe(folder: Path, **fields: Any) -> Recipe:
    return msgspec.convert({"reference": "grove-samples/x:1", "entry": ["/x"], "folder": folder, **fields}, Recipe)


def test_every_engine_of_the_list_is_there() -> None:
    assert FOLDERS == ["dynamo", "llama-cpp-rpc", "mpi", "sglang-disagg", "trtllm", "vllm-multinode"]
    assert WITH_IMAGE == ["dynamo", "llama-cpp-rpc", "mpi"]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_has_a_page_and_a_check(name: str) -> None:
    page = (SAMPLES / name / "README.md").read_text()
    assert len(page.splitlines()) < 70, "one page"
    for heading in ("**What it shows**", "**On GPUs**|**Run it on GPUs**", "**What to change**"):
        assert re.search(heading.replace("*", r"\*"), page), heading
    check = SAMPLES / name / "check.sh"
    assert check.stat().st_mode & 0o111
    assert f"{name}/check.sh" in page


@pytest.mark.parametrize("name", WITH_IMAGE)
def test_what_a_recipe_names_is_there(name: str) -> None:
    found = Recipe.of(SAMPLES / name)
    assert [one.name for one in packages(found)] == [one.name for one in locked(LOCK) if one.name in found.debian]
    assert all(found.path(file).is_file() for file in found.files.values())
    if found.wheels:
        text = found.path(found.wheels).read_text()
        pins = re.findall(r"^[\w.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}$", text, re.MULTILINE)
        assert len(pins) == text.count("==") > 0
    images = re.findall(r"image: (\S+)", (SAMPLES / name / "manifest.yaml").read_text())
    assert set(images) == {found.reference}


@pytest.mark.parametrize("name", WITH_IMAGE)
def test_images_run_without_rights_and_are_never_pulled_again(name: str) -> None:
    assert settings(Recipe.of(SAMPLES / name))["User"] == "65532:65532"
    (manifest, *_) = yaml.safe_load_all((SAMPLES / name / "manifest.yaml").read_text())
    for clique in manifest["spec"]["template"]["cliques"]:
        pod = clique["spec"]["podSpec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["imagePullPolicy"] == "IfNotPresent"
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_field_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image.toml").write_text('reference = "a:1"\nentry = ["/a"]\nwheel = "requirements.txt"\n')
    with pytest.raises(msgspec.ValidationError, match="wheel"):
        Recipe.of(tmp_path)


def test_a_package_that_is_not_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="nosuch"):
        packages(recipe(tmp_path, debian=["libc6", "nosuch"]))


def test_an_image_is_a_function_of_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "notes.txt").write_text("plain\n")
    made = recipe(tmp_path, files={"usr/bin/run": "run.sh", "etc/notes": "notes.txt"}, env={"B": "2"}, folders=["work"])
    (one, first), (_, second) = (write_image(made, tmp_path / name, tmp_path / "cache") for name in ("a", "b"))
    assert first == second
    files, config = unpacked(one)
    assert files["usr/bin/run"] == 0o755
    assert files["etc/notes"] == 0o644
    assert files["work"] == files["tmp"] == 0o1777
    assert config["Entrypoint"] == ["/x"]
    assert "B=2" in config["Env"]
    (tmp_path / "notes.txt").write_text("other\n")
    assert write_image(made, tmp_path / "c", tmp_path / "cache")[1].digest != first.digest


def test_an_image_that_is_too_large_is_not_left_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert assemble.MOST_BYTES == 300_000_000
    monkeypatch.setattr(assemble, "MOST_BYTES", 100)
    (tmp_path / "a.txt").write_text("".join(map(str, range(1000))))
    with pytest.raises(Missing, match=r"more than 0\.0001 MB"):
        write_image(recipe(tmp_path, files={"etc/a": "a.txt"}), tmp_path / "dist", tmp_path / "cache")
    assert list((tmp_path / "dist").iterdir()) == []


def test_an_image_is_made_again_only_when_its_inputs_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "samples" / "mine"
    folder.mkdir(parents=True)
    (folder / "image.toml").write_text('reference = "a:1"\nentry = ["/a"]\nfiles = { "etc/a" = "a.txt" }\n')
    (folder / "a.txt").write_text("one")
    monkeypatch.setattr(command, "SAMPLES", tmp_path / "samples")
    monkeypatch.setattr(command, "with_image", lambda: ["mine"])

    def said() -> str:
        assert command.main(["--target", str(tmp_path / "dist"), "--cache", str(tmp_path / "cache")]) == 0
        return capsys.readouterr().out

    assert "sha256:" in said()
    assert said() == "mine  is up to date\n"
    (folder / "a.txt").write_text("two")
    assert "sha256:" in said()


def test_python_of_wheels_is_found_only_where_there_are_wheels(tmp_path: Path) -> None:
    with_wheels = settings(recipe(tmp_path, wheels="requirements.txt"))["Env"]
    assert "PYTHONPATH=/opt/python" in with_wheels
    assert not any("PYTHONPATH" in one for one in settings(recipe(tmp_path))["Env"])


def test_modules_and_data_of_wheels_are_in_a_layer_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "zoo-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("zoo/__init__.py", "zoo/cage.so", "zoo-1.data/data/bin/zoo"):
            archive.writestr(name, "")
    monkeypatch.setattr(assemble, "wheels", lambda requirements, cache: [wheel])
    monkeypatch.setattr(assemble, "compiled", lambda tree, python: None)
    _, modules = assemble.layers(recipe(tmp_path, wheels="requirements.txt"), tmp_path / "cache")
    assert {path: mode for path, (_, mode) in modules.files.items()} == {
        "opt/python/zoo/__init__.py": 0o644,
        "opt/python/zoo/cage.so": 0o755,
        "usr/local/bin/zoo": 0o755,
    }


def test_the_user_has_the_shell_that_the_recipe_names(tmp_path: Path) -> None:
    content, _ = accounts(recipe(tmp_path, shell="/bin/sh")).files["etc/passwd"]
    assert content.decode().splitlines()[-1] == "engine:x:65532:65532::/tmp:/bin/sh"


def test_built_programs_are_taken_from_the_cache(tmp_path: Path) -> None:
    folder = tmp_path / f"llama.cpp-{llama.key()}"
    folder.mkdir()
    for name in llama.TARGETS:
        (folder / name).write_text(name)
    assert llama.programs(tmp_path) == {
        "usr/bin/llama-server": b"llama-server",
        "usr/bin/rpc-server": b"ggml-rpc-server",
    }


def test_two_models_differ_in_their_seed_only() -> None:
    assert len(set(models.SEEDS.values())) == len(models.SEEDS) == 2


def unpacked(archive: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """Modes of all files and folders of an image by their path, and its configuration."""
    with tarfile.open(archive) as tar:

        def blob(described: dict[str, Any]) -> bytes:
            file = tar.extractfile(f"blobs/{described['digest'].replace(':', '/')}")
            assert file is not None
            return file.read()

        index = tar.extractfile("index.json")
        assert index is not None
        manifest = json.loads(blob(json.load(index)["manifests"][0]))
        modes = {}
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(layer)), mode="r:gz") as inside:
                modes |= {one.name: one.mode for one in inside}
        return modes, json.loads(blob(manifest["config"]))["config"]


@pytest.mark.parametrize("machine", ["aarch64", "arm64", "ppc64le"])
def test_another_host_is_refused_with_what_to_do(machine: str, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert command.main(["llama-cpp-rpc", "--target", str(tmp_path), "--cache", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"x86-64 only, and this host is {machine}" in said
    assert "make image ARCH=arm64" in said


@pytest.mark.parametrize("machine", ["x86_64", "AMD64"])
def test_an_x86_64_host_can_build_them(machine: str) -> None:
    command.check_host(machine)
