"""What a killed cluster of real nodes leaves, who removes it, and what is missing in words; without any kubelet."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from grove.local.nodes import leftovers, preflight
from grove.local.nodes.layout import places


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for /proc/sys, with one setting; records and cgroups are beside it."""
    folder = tmp_path / "sys"
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel/panic").write_text("0\n")
    monkeypatch.setattr(leftovers, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(leftovers, "_setting", lambda name: folder / name)
    monkeypatch.setattr(leftovers, "cgroup_roots", lambda directory: [tmp_path / leftovers.cgroup(directory)])
    return folder


def begun(directory: Path, settings: Path) -> leftovers.Claim:
    """A cluster that started in that directory: it has files and cgroups, and its kubelet changed the setting."""
    claim = leftovers.claim(directory)
    (directory / "node-1/images").mkdir(parents=True)
    (directory / "logs").mkdir()
    claim.write(directory)
    (settings / "kernel/panic").write_text("10\n")
    (directory.parent / leftovers.cgroup(directory) / "node-1/pod").mkdir(parents=True)
    return claim


def test_what_a_killed_cluster_left_is_removed_by_the_next_start(settings: Path, tmp_path: Path) -> None:
    directory, said = tmp_path / "cluster", list[str]()
    begun(directory, settings).release()  # as a kill does
    leftovers.clean_dead(said.append)
    leftovers.clean_dead(said.append)
    assert (settings / "kernel/panic").read_text() == "0\n"
    assert not (tmp_path / leftovers.cgroup(directory)).exists()
    assert [one.name for one in directory.iterdir()] == ["logs"], "logs stay"
    mark = leftovers.cgroup(directory)
    assert said == [
        f"removed: cgroups {mark}, files of the nodes in {directory}; kernel settings restored: kernel/panic"
    ]
    assert not list(leftovers.RECORDS.iterdir())


def test_a_cluster_that_runs_is_not_touched_and_not_started_twice(settings: Path, tmp_path: Path) -> None:
    directory, said = tmp_path / "cluster", list[str]()
    claim = begun(directory, settings)
    leftovers.clean_dead(said.append)
    assert (directory / "node-1/images").exists()
    assert said == []
    with pytest.raises(preflight.CannotRun, match=f"runs in {directory}"):
        leftovers.claim(directory)
    claim.release()


def test_a_clean_up_waits_for_the_last_process_of_a_cluster_that_was_stopped(settings: Path, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    last = begun(directory, settings)
    threading.Timer(0.3, last.release).start()
    with leftovers.claimed(directory, wait_s=60) as claim:
        assert claim.clean(print)


@pytest.mark.parametrize(("before", "during"), [("128\n", "1024\n"), ("8192\n", "8192\n")])
def test_a_limit_that_is_too_low_for_kubelets_is_raised_while_nodes_run(
    settings: Path, tmp_path: Path, before: str, during: str
) -> None:
    limit = settings / "fs/inotify/max_user_instances"
    limit.parent.mkdir(parents=True)
    limit.write_text(before)
    claim = begun(tmp_path / "cluster", settings)
    assert limit.read_text() == during
    assert claim.clean(print)
    assert limit.read_text() == before
    claim.release()


def test_of_two_clusters_the_last_to_end_restores_the_kernel_settings(settings: Path, tmp_path: Path) -> None:
    first = begun(tmp_path / "first", settings)
    second = begun(tmp_path / "second", settings)
    assert first.clean(print)
    first.release()
    assert (settings / "kernel/panic").read_text() == "10\n", "the other one still runs"
    assert second.clean(print)
    second.release()
    assert (settings / "kernel/panic").read_text() == "0\n", "as it was before the first"


def test_a_cluster_that_starts_while_another_restores_the_settings_records_the_values_of_before(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begun(tmp_path / "first", settings)
    second = leftovers.claim(tmp_path / "second")
    writing = threading.Thread(target=second.write, args=(tmp_path / "second",))
    restore = leftovers._restore

    def slowly(name: str, value: str) -> bool:
        writing.start()
        writing.join(0.3)  # without a lock it has read the setting by now
        return restore(name, value)

    monkeypatch.setattr(leftovers, "_restore", slowly)
    assert first.clean(print)
    writing.join(60)
    record = leftovers._read(second.file)
    assert record is not None
    assert record.settings == {"kernel/panic": "0\n"}
    first.release()
    second.release()


def test_a_record_that_its_owner_removes_meanwhile_is_claimed_again(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, lock = leftovers._record_file(tmp_path), leftovers.fcntl.flock
    removed: list[Path] = []

    def after_removal(descriptor: int, how: int) -> None:
        if not removed:
            removed.append(file)
            file.unlink()
        lock(descriptor, how)

    monkeypatch.setattr(leftovers.fcntl, "flock", after_removal)
    claim = leftovers.claim(tmp_path)
    assert removed
    claim.write(tmp_path)
    with pytest.raises(preflight.CannotRun):
        leftovers.claim(tmp_path)
    claim.release()


def test_a_record_that_was_cut_off_counts_as_nothing_started(settings: Path, tmp_path: Path) -> None:
    claim = leftovers.claim(tmp_path)
    claim.file.write_text('{"direct')
    assert not claim.clean(print)
    claim.release()


def test_every_missing_thing_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(preflight, "missing_programs", lambda: ["runc", "nft"])
    monkeypatch.setattr(preflight, "DISK_GB", 10**9)
    with pytest.raises(preflight.CannotRun) as refused:
        preflight.check(Path("/var/lib/grove") / ("x" * 60))
    said = str(refused.value)
    assert "needs root" in said
    assert "not installed: runc, nft. On Debian and Ubuntu: apt-get update && apt-get install" in said
    assert "GB free" in said
    assert "below /var/lib" in said
    assert "has 75 characters, and 67 are possible" in said


def test_nodes_have_addresses_and_pod_ranges_of_their_own(tmp_path: Path) -> None:
    found = places(3, tmp_path)
    assert [(one.name, one.address, one.pods) for one in found] == [
        ("node-1", "10.100.0.11", "10.244.1.0/24"),
        ("node-2", "10.100.0.12", "10.244.2.0/24"),
        ("node-3", "10.100.0.13", "10.244.3.0/24"),
    ]
