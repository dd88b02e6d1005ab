"""One cluster of real nodes at a time, and what a killed one leaves: the record and the words, without any kubelet."""

from __future__ import annotations

from pathlib import Path

import pytest

from grove.local.nodes import leftovers, preflight
from grove.local.nodes.layout import places


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for /proc/sys, with one setting; the record is beside it and no cgroup is touched."""
    folder = tmp_path / "sys"
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel/panic").write_text("0\n")
    monkeypatch.setattr(leftovers, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(leftovers, "_setting", lambda name: folder / name)
    monkeypatch.setattr(leftovers, "cgroup_roots", lambda: [tmp_path / "cgroup" / leftovers.CGROUP])
    return folder


def test_what_a_killed_cluster_left_is_removed_by_the_next_claim(settings: Path, tmp_path: Path) -> None:
    first = leftovers.claim(print)
    directory = tmp_path / "cluster"
    (directory / "node-1/images").mkdir(parents=True)
    (directory / "logs").mkdir()
    first.write(directory)
    (settings / "kernel/panic").write_text("10\n")
    (tmp_path / "cgroup" / leftovers.CGROUP / "node-1/pod").mkdir(parents=True)
    first.release()  # as a kill does

    said: list[str] = []
    second = leftovers.claim(said.append)
    assert second.clean(said.append)
    assert not second.clean(said.append), "the second time there is nothing to clean"
    second.release()
    assert (settings / "kernel/panic").read_text() == "0\n"
    assert not (tmp_path / "cgroup" / leftovers.CGROUP).exists()
    assert [one.name for one in directory.iterdir()] == ["logs"], "logs stay"
    assert said == [
        f"removed: cgroups grove-nodes, files of the nodes in {directory}; kernel settings restored: kernel/panic"
    ]


def test_a_second_cluster_is_refused_while_one_runs(settings: Path, tmp_path: Path) -> None:
    first = leftovers.claim(print)
    first.write(tmp_path)
    with pytest.raises(preflight.CannotRun, match=f"runs on this machine in {tmp_path}"):
        leftovers.claim(print)
    first.release()
    leftovers.claim(print).release()


def test_a_record_that_was_cut_off_counts_as_nothing_started(settings: Path) -> None:
    leftovers.RECORD.write_text('{"direct')
    claim = leftovers.claim(print)
    assert claim.found() == leftovers.Record("", {})
    claim.release()


def test_every_missing_thing_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(preflight, "missing_programs", lambda: ["runc", "nft"])
    monkeypatch.setattr(preflight, "DISK_GB", 10**9)
    with pytest.raises(preflight.CannotRun) as refused:
        preflight.check(Path("/var/lib/grove"))
    said = str(refused.value)
    assert "needs root" in said
    assert "not installed: runc, nft. On Debian and Ubuntu: apt-get update && apt-get install" in said
    assert "GB free" in said
    assert "below /var/lib" in said


def test_nodes_have_addresses_and_pod_ranges_of_their_own(tmp_path: Path) -> None:
    found = places(3, tmp_path)
    assert [(one.name, one.address, one.pods) for one in found] == [
        ("node-1", "10.100.0.11", "10.244.1.0/24"),
        ("node-2", "10.100.0.12", "10.244.2.0/24"),
        ("node-3", "10.100.0.13", "10.244.3.0/24"),
    ]
