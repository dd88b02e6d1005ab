"""Bytecode in images is a function of the sources alone."""

from __future__ import annotations

import marshal
import sys

from tools.image import __main__ as image

from grove.local.oci import Tree

SOURCE = b'def zebra(mane):\n    return "stripes of it", mane.colour\n\n\nZEBRAS = {"okapi": zebra}\n'
PLACE = "opt/__pycache__/zoo.cpython-311.pyc"


def pyc() -> bytes:
    tree = Tree()
    tree.add("opt/zoo.py", SOURCE)
    tree.add("opt/template.py", b"this is {{ no }} Python")
    image.compiled(tree, [sys.executable])
    assert [path for path in tree.files if path.endswith(".pyc")] == [PLACE]
    return tree.files[PLACE][0]


def test_it_does_not_depend_on_what_the_building_process_has_in_memory() -> None:
    before = pyc()
    kept: dict[str, object] = {}
    exec(compile(SOURCE, "zoo", "exec"), kept)
    assert pyc() == before


def test_it_is_the_module_and_never_looks_at_its_source() -> None:
    code = pyc()
    assert code[4:8] == b"\x01\x00\x00\x00", "by hash, and not to be checked"
    found: dict[str, object] = {}
    exec(marshal.loads(code[16:]), found)
    assert "ZEBRAS" in found
