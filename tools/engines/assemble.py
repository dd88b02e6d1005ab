"""From a recipe to an OCI archive. The same recipe gives the same digest on the same kind of machine."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.engines import llama, models
from tools.engines.recipe import NAME, Recipe
from tools.image.__main__ import compiled, python_of
from tools.image.sources import AMD64, Missing, Package, add_package, add_wheel, locked, wheels

from grove.local.oci import Image, Tree, write_archive

LOCK = Path(__file__).with_name("debian.lock")
MOST_BYTES = 300_000_000
"""How large an image may be, compressed: samples are loaded onto nodes by hand."""
PYTHON_PATH = "opt/python"
"""Where the modules of wheels are."""
_UNUSED = re.compile(
    r"^usr/(share/(doc|man|lintian|locale|bug|menu|pixmaps|applications|binfmts|perl5|debconf|zoneinfo)|games)(/|$)"
    r"|^usr/lib/python3.11/(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|config-.*|sqlite3)(/|$)"
    r"|^usr/lib/x86_64-linux-gnu/(gconv|audit)(/|$)|^var(/|$)|/__pycache__/"
)
"""Documentation, character sets, and parts of Python that no engine imports."""


def packages(recipe: Recipe, lock: Sequence[Package] | None = None) -> list[Package]:
    """The recipe's Debian packages in the order of the lock file."""
    chosen = [package for package in (locked(LOCK) if lock is None else lock) if package.name in recipe.debian]
    if absent := set(recipe.debian) - {package.name for package in chosen}:
        raise Missing(f"{', '.join(sorted(absent))}: not in {LOCK.name}; add a line and run `tools.engines lock`")
    return chosen


def settings(recipe: Recipe) -> dict[str, Any]:
    """How a runtime starts the image: everything but the files."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", **recipe.env}
    if recipe.wheels:
        env |= {"PYTHONPATH": f"/{PYTHON_PATH}", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        "User": f"{recipe.user}:{recipe.user}",
        "Env": [f"{name}={value}" for name, value in sorted(env.items())],
        "Entrypoint": recipe.entry,
        "WorkingDir": "/",
    }


def accounts(recipe: Recipe) -> Tree:
    """Users, groups and what every program expects to find below /etc and /tmp."""
    tree = Tree()
    tree.links |= {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin", "sbin": "usr/sbin"}
    user = f"engine:x:{recipe.user}:{recipe.user}::/tmp:{recipe.shell}\n"
    tree.add("etc/passwd", f"root:x:0:0::/:/nologin\n{user}".encode())
    tree.add("etc/group", f"root:x:0:\nengine:x:{recipe.user}:\n".encode())
    tree.add("etc/nsswitch.conf", b"hosts: files dns\n")
    tree.folders |= {"tmp": 0o1777, **dict.fromkeys(recipe.folders, 0o1777)}
    return tree


def layers(recipe: Recipe, cache: Path) -> list[Tree]:
    """The image's layers, those that change least first."""
    cache.mkdir(parents=True, exist_ok=True)
    base = accounts(recipe)
    for package in packages(recipe):
        add_package(base, package, cache, _UNUSED.search)
    trees = [base]
    if recipe.wheels:
        modules = Tree()
        for wheel in wheels(recipe.path(recipe.wheels), cache):
            add_wheel(modules, wheel, PYTHON_PATH, data="usr/local")
        with python_of(base, AMD64) as python:
            for tree in (base, modules):
                compiled(tree, python)
        _strip(modules)
        trees.append(modules)
    built = Tree()
    for path, content in (llama.programs(cache) if recipe.programs else {}).items():
        built.add(path, content, 0o755)
    for name in recipe.models:
        for path, content in models.files(name, cache).items():
            built.add(f"models/{path}", content)
    own = Tree()
    for path, name in recipe.files.items():
        content = recipe.path(name).read_bytes()
        own.add(path, content, 0o755 if content.startswith(b"#!") else 0o644)
    return [tree for tree in (*trees, built, own) if tree.files or tree.folders or tree.links]


def inputs(recipe: Recipe) -> str:
    """A hash over everything that an image is made of; equal inputs give an equal image."""
    beside = [recipe.wheels] if recipe.wheels else []
    texts = [recipe.path(name).read_bytes() for name in (NAME, *beside, *sorted(recipe.files.values()))]
    texts += [repr(packages(recipe)).encode(), Path(__file__).read_bytes()]
    texts += [llama.key().encode()] if recipe.programs else []
    texts += [models.key().encode()] if recipe.models else []
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def write_image(recipe: Recipe, target: Path, cache: Path) -> tuple[Path, Image]:
    """The archive `<folder>.tar` in `target`."""
    target.mkdir(parents=True, exist_ok=True)
    archive = target / f"{recipe.folder.name}.tar"
    contents = [tree.layer() for tree in layers(recipe, cache)]
    image = write_archive(archive, recipe.reference, contents, settings(recipe), AMD64.name)
    if image.compressed > MOST_BYTES:
        archive.unlink()
        raise Missing(f"{archive.name} has {image.compressed / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:g} MB")
    return archive, image


def _strip(tree: Tree) -> None:
    """Removes debug symbols from shared libraries larger than 10 MB."""
    for path, (content, mode) in tree.files.items():
        if ".so" in path and len(content) > 10e6:
            with tempfile.NamedTemporaryFile() as file:
                Path(file.name).write_bytes(content)
                subprocess.run(["strip", "--strip-unneeded", file.name], check=True)
                tree.files[path] = (Path(file.name).read_bytes(), mode)
