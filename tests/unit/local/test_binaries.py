"""Where the Kubernetes programs are looked for, with directories of fake programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grove.local import binaries, gobuild
from grove.local.binaries import BinariesError, find, find_or_build, release

REPOSITORY = Path(__file__).resolve().parents[3]


def fake_programs(directory: Path, version: str, *, without: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in binaries.PROGRAMS:
        if name != without:
            (directory / name).write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
            (directory / name).chmod(0o755)
    return directory


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("GROVE_KUBE_BIN", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "grove" / "kube"


@pytest.fixture
def said() -> list[str]:
    return []


def test_the_users_directory_wins_over_the_others(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    ours = fake_programs(tmp_path / "ours", "1.36.3")
    assets = fake_programs(tmp_path / "assets", "1.36.3")
    cached = fake_programs(cache / "1.36.3", "1.36.3")
    assert find("1.36.3", say=said.append) == cached
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert find("1.36.3", say=said.append) == assets
    monkeypatch.setenv("GROVE_KUBE_BIN", str(ours))
    assert find("v1.36.3", say=said.append) == ours
    assert said == []


def test_a_sub_directory_named_after_the_version_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_programs(tmp_path / "many" / "1.36.3", "1.36.3")
    older = fake_programs(tmp_path / "many" / "1.35.4", "1.35.4")
    monkeypatch.setenv("GROVE_KUBE_BIN", str(tmp_path / "many"))
    assert find("1.35.4") == older


def test_another_version_is_passed_over_aloud(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("GROVE_KUBE_BIN", str(fake_programs(tmp_path / "old", "1.33.0")))
    cached = fake_programs(cache / "1.36.3", "1.36.3")
    assert find("1.36.3", say=said.append) == cached
    assert said == [f"GROVE_KUBE_BIN={tmp_path / 'old'} is passed over: holds 1.33.0, not 1.36.3"]


def test_a_directory_that_lacks_a_program_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(fake_programs(tmp_path / "half", "1.36.3", without="kube-scheduler")))
    assert find("1.36.3", say=said.append) is None
    assert said[0].endswith("lacks kube-scheduler")


def test_a_minor_version_takes_any_patch_of_the_users_and_the_pinned_one_of_ours(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = fake_programs(cache / "1.35.4", "1.35.4")
    assert find("1.35") == cached
    theirs = fake_programs(tmp_path / "theirs", "1.35.1")
    monkeypatch.setenv("GROVE_KUBE_BIN", str(theirs))
    assert find("1.35") == theirs


@pytest.mark.parametrize("wrong", ["", "latest", "1", "1.36.3-rc.0", "1.36.3/../x", "1.20"])
def test_a_wrong_version_is_refused(wrong: str) -> None:
    with pytest.raises(BinariesError):
        release(wrong)


def test_it_is_built_only_when_nothing_is_found(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(version: str, root: Path, *, say: binaries.Say) -> Path:
        built.append(version)
        return fake_programs(root / version, version)

    monkeypatch.setattr(gobuild, "build", build)
    assert find_or_build("1.36.3") == find_or_build("1.36.3") == cache / "1.36.3"
    assert built == ["1.36.3"]


def test_every_sister_module_is_replaced_by_its_release_and_no_other() -> None:
    theirs = """module k8s.io/kubernetes

go 1.26.0

require (
\tk8s.io/api v0.0.0
\tk8s.io/utils v0.0.0-20260210185600-b8788abfbbc2
\tk8s.io/kubectl v0.0.0 // indirect
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/sample-controller => ./staging/src/k8s.io/sample-controller
)
"""
    ours = gobuild.generated_go_mod(theirs, "1.36.3")
    assert "go 1.26.0\n" in ours
    assert "require k8s.io/kubernetes v1.36.3\n" in ours
    for sister in ("api", "kubectl", "sample-controller"):
        assert f"\tk8s.io/{sister} => k8s.io/{sister} v0.36.3\n" in ours
    assert "utils" not in ours


def test_a_failed_build_says_what_to_do_and_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\n[ $1 = env ] && echo go1.26.1 && exit 0\necho no network >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    with pytest.raises(BinariesError, match=r"(?s)no network.*GROVE_KUBE_BIN"):
        find_or_build("1.36.3", say=lambda _: None)
    assert sorted(path.name for path in cache.iterdir()) == [".build.lock"]


def test_a_further_program_is_built_once_and_laid_beside_the_others(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("go 1.26.0\n\nrequire (\n\tk8s.io/api v0.0.0\n)\n")
    told = f'{{"GoMod": "{module}/go.mod", "Dir": "{module}"}}'
    go = tmp_path / "path" / "go"
    go.parent.mkdir()
    go.write_text(
        f"#!/bin/sh\necho $1 >> {tmp_path}/asked\n"
        f"case $1 in\nenv) echo go1.26.1;;\nmod) echo '{told}';;\n"
        f"build) touch $6; chmod +x $6; echo $7 > {tmp_path}/what;;\nesac\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    fake_programs(cache / "1.36.3", "1.36.3")
    for _ in range(2):
        built = gobuild.build_also("kubelet", "1.36.3", cache, say=lambda _: None)
        assert built == cache / "1.36.3" / "kubelet"
    assert (tmp_path / "asked").read_text().split() == ["env", "mod", "build"]
    assert (tmp_path / "what").read_text() == "k8s.io/kubernetes/cmd/kubelet\n"
    assert sorted(path.name for path in cache.iterdir()) == [".build-kubelet-1.36.3.lock", "1.36.3"]


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        pytest.param("1.36.3", "1.36.3", id="a version's directory"),
        pytest.param("helm", f"helm-{gobuild.HELM_VERSION}/helm", id="helm"),
    ],
)
def test_the_script_prints_only_the_path_and_needs_no_package(asked: str, place: str, cache: Path) -> None:
    fake_programs(cache / "1.36.3", "1.36.3")
    helm = cache / f"helm-{gobuild.HELM_VERSION}" / "helm"
    helm.parent.mkdir()
    helm.touch(0o755)
    script = REPOSITORY / "tools" / "kube" / "kube_bin.py"
    # -S leaves site-packages out, so an import of anything but the standard library would fail.
    done = subprocess.run([sys.executable, "-S", str(script), asked], capture_output=True, text=True, check=True)
    assert done.stdout == f"{cache / place}\n"
