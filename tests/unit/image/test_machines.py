"""Images for another machine: what they are made of, and that nothing for the wrong machine gets into them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.image.__main__ import ROOT, Contents
from tools.image.sources import AMD64, ARM64, MACHINES, Missing, foreign_programs, locked

from grove.local.oci import Tree


def program(elf: int) -> bytes:
    """The first bytes of an ELF file for a machine."""
    return b"\x7fELF" + bytes(14) + elf.to_bytes(2, "little") + bytes(44)


def tree() -> Tree:
    made = Tree()
    made.add("usr/bin/arm", program(183), 0o755)
    made.add("usr/lib/amd.so", program(62), 0o755)
    made.add("opt/grove/a.py", b"import os")
    return made


def test_a_program_for_another_machine_is_found() -> None:
    assert foreign_programs(tree(), AMD64) == ["usr/bin/arm"]
    assert foreign_programs(tree(), ARM64) == ["usr/lib/amd.so"]


def test_an_image_with_a_program_for_another_machine_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"usr/lib/amd\.so and 0 others are not for arm64"):
        Contents("one", [tree()], {}, [], ARM64).write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_machine_has_the_same_packages_at_the_same_versions() -> None:
    found = {name: locked(machine.lock, machine) for name, machine in MACHINES.items()}
    amd, arm = ([(one.where, one.name) for one in found[name]] for name in ("amd64", "arm64"))
    assert amd == arm
    same = {one.name for one in found["amd64"]} & {"ca-certificates", "netbase"}
    digests = {name: {one.name: one.sha256 for one in packages} for name, packages in found.items()}
    assert {one for one in digests["amd64"] if digests["amd64"][one] == digests["arm64"][one]} == same


def test_every_wheel_with_compiled_code_has_one_for_each_machine_among_its_hashes() -> None:
    assert AMD64.platforms[0] == "manylinux_2_28_x86_64"
    assert ARM64.platforms == ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64", "any")
    pinned = (ROOT / "requirements" / "runtime.txt").read_text()
    assert "numpy==" in pinned
    assert pinned.count("--hash=sha256:") > 50, "all wheels of a version are pinned, also those of other machines"
