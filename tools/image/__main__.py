"""`make image`: builds both images of Grove on a plain Linux machine, without Docker, a daemon or a base image.

    python tools/image            dist/grove.tar and dist/grove-initc.tar, each with its SBOM (SPDX) beside it
    python tools/image --arch arm64            the same for Arm, in dist/arm64, from Debian's arm64 packages and wheels
    python tools/image --otel     with the packages of grove-k8s[otel] in the image grove, for traces
    python tools/image roots      the same files unpacked, in dist/grove and dist/grove-initc: what the Dockerfile takes
    python tools/image lock       moves debian.lock (or debian-arm64.lock) to the newest packages that apt lists

The same commit gives the same digests. Needs apt-get (for packages, as any user), pip and Python 3.11.
"""

from __future__ import annotations

import argparse
import json
import marshal
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tools.image.sources import (  # noqa: E402
    AMD64,
    MACHINES,
    Machine,
    Missing,
    add_package,
    add_wheel,
    default_cache,
    foreign_programs,
    locked,
    this_machine,
    wheels,
    write_lock,
)

from grove import __version__  # noqa: E402
from grove.local.oci import Tree, write_archive  # noqa: E402

USER_ID = 65532
HOME = "opt/grove"
PYTHON = "/usr/bin/python3.11"
_PYTHON_LIB = "usr/lib/python3.11/"
_UNUSED = re.compile(
    r"^usr/(share/(doc|man|lintian|locale|bug|menu|pixmaps|applications|binfmts|perl5|debconf|python)|sbin|games)(/|$)"
    r"|^usr/lib/python3.11/(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|distutils|pydoc_data|config-.*|unittest"
    r"|venv|xmlrpc|curses|dbm|sqlite3|msilib|turtle.py|doctest.py|pydoc.py|this.py|antigravity.py)(/|$)"
    r"|^usr/lib/[a-z0-9_]+-linux-gnu/(gconv|audit|engines-3|ossl-modules)(/|$)|^usr/lib/(valgrind|python3)(/|$)"
    r"|^(etc/(init|default|python3.11|ld.so.conf.d)|var)(/|$)|/__pycache__/|^usr/bin/(pydoc|pdb|pygettext)"
)
"""Documentation, character sets, and parts of the standard library that nothing here imports."""
_MAIN_ONLY = re.compile(r"^usr/lib/python3.11/(multiprocessing|xml|zoneinfo|tomllib)(/|$)")


def base_layer(cache: Path, where: Sequence[str], machine: Machine) -> tuple[Tree, list[str]]:
    """Python and what it needs, as Debian has it, and nothing to install more with."""
    tree = Tree()
    main = "main" in where

    def is_unused(path: str) -> object:
        return _UNUSED.search(path) or (not main and _MAIN_ONLY.search(path))

    packages = [package for package in locked(machine.lock, machine) if package.where in where]
    parts = [add_package(tree, package, cache, is_unused) for package in packages]
    tree.links |= {"lib": "usr/lib", "bin": "usr/bin", "usr/bin/python3": "python3.11"}
    if machine.loader.startswith("lib64/"):
        tree.links["lib64"] = "usr/lib64"
    authorities = sorted(path for path in tree.files if path.startswith("usr/share/ca-certificates/"))
    if authorities:
        tree.add("etc/ssl/certs/ca-certificates.crt", b"".join(tree.files.pop(path)[0] for path in authorities))
    tree.add("etc/passwd", f"root:x:0:0::/:/nologin\ngrove:x:{USER_ID}:{USER_ID}::/:/nologin\n".encode())
    tree.add("etc/group", f"root:x:0:\ngrove:x:{USER_ID}:\n".encode())
    tree.add("etc/nsswitch.conf", b"hosts: files dns\n")
    tree.folders["tmp"] = 0o1777
    return tree, parts


@contextmanager
def python_of(base: Tree, machine: Machine) -> Iterator[list[str]]:
    """The command that runs the Python of a base layer, as it is unpacked, with its own loader and libraries."""
    with tempfile.TemporaryDirectory() as folder:
        base.unpack(Path(folder))
        loader = [f"{folder}/{machine.loader}", "--library-path", f"{folder}/usr/lib/{machine.libraries}"]
        yield ["/usr/bin/env", "-i", f"PYTHONHOME={folder}/usr", "PYTHONHASHSEED=0", *loader, f"{folder}{PYTHON}"]


def compiled(tree: Tree, python: Sequence[str]) -> None:
    """Bytecode beside every module, never checked: the files cannot change. A start takes a third of the time."""
    modules = [(path, tree.files[path][0]) for path in sorted(tree.files) if path.endswith(".py")]
    program = [*python, "-S", "-B", str(Path(__file__).with_name("bytecode.py"))]
    done = subprocess.run(program, input=marshal.dumps(modules), stdout=subprocess.PIPE, check=True)
    for path, content in marshal.loads(done.stdout):  # noqa: S302
        folder, _, name = path.rpartition("/")
        if content:
            tree.add(f"{folder}/__pycache__/{name[:-3]}.cpython-311.pyc", content)


def sources(tree: Tree, *folders: str) -> None:
    """This checkout's modules and data, as git has them; all there are where no git is, as in a Docker build."""
    listed = (
        subprocess.run(["git", "ls-files", "-z", "src/grove"], cwd=ROOT, capture_output=True, check=False).stdout
        if (ROOT / ".git").exists()
        else b""
    )
    on_disk = [str(path.relative_to(ROOT)) for path in (ROOT / "src/grove").rglob("*") if path.is_file()]
    for name in sorted(filter(None, listed.decode().split("\0"))) or sorted(on_disk):
        if "__pycache__" in name:
            continue
        inside = name.removeprefix("src/")
        if (
            not folders
            or inside == "grove/__init__.py"
            or inside.startswith(tuple(f"grove/{folder}/" for folder in folders))
        ):
            tree.add(f"{HOME}/{inside}", (ROOT / name).read_bytes())


def sbom(name: str, digest: str, parts: Iterable[str]) -> str:
    """What is inside, as SPDX."""
    packages = [
        {
            "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", part),
            "name": part.split()[0],
            "versionInfo": part.split()[1],
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
        }
        for part in sorted(set(parts))
    ]
    return json.dumps(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": name,
            "documentNamespace": f"urn:grove:{digest}",
            "packages": packages,
            "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: grove-tools-image"]},
        },
        indent=1,
        sort_keys=True,
    )


ENV = [
    "PATH=/usr/bin",
    f"PYTHONPATH=/{HOME}",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONUNBUFFERED=1",
    "PYTHONSAFEPATH=1",
    "LANG=C.UTF-8",
    "OPENBLAS_NUM_THREADS=1",
]


def config(entry: list[str], command: list[str]) -> dict[str, object]:
    labels = {"org.opencontainers.image.title": "grove", "org.opencontainers.image.version": __version__}
    body: dict[str, object] = {
        "User": f"{USER_ID}:{USER_ID}",
        "Env": ENV,
        "Entrypoint": entry,
        "WorkingDir": "/",
        "Labels": labels,
    }
    return body | ({"Cmd": command} if command else {})


@dataclass(frozen=True)
class Contents:
    """One image: its layers, how it is run, and what is in it by name and version."""

    name: str
    layers: list[Tree]
    settings: dict[str, object]
    parts: list[str]
    machine: Machine = AMD64

    @property
    def reference(self) -> str:
        return f"{self.name}:{__version__}"

    def write(self, target: Path) -> None:
        """The image as an archive, with its SBOM beside it."""
        for tree in self.layers:
            if wrong := foreign_programs(tree, self.machine):
                raise Missing(f"{wrong[0]} and {len(wrong) - 1} others are not for {self.machine.name}")
        archive, layers = target / f"{self.name}.tar", [tree.layer() for tree in self.layers]
        image = write_archive(archive, self.reference, layers, self.settings, self.machine.name)
        (target / f"{self.name}.spdx.json").write_text(sbom(self.reference, image.digest, self.parts))
        print(f"{self.reference}  {image.digest}  {image.compressed / 1e6:.1f} MB compressed  {archive}")

    def unpack(self, target: Path) -> None:
        """The image's files in a folder of its name."""
        for tree in self.layers:
            tree.unpack(target / self.name)


MAIN = config([PYTHON, "-m", "grove"], ["--help"])
STARTUP = config([PYTHON, "-m", "grove.startup"], [])


def pinned_wheels(cache: Path, machine: Machine, *, has_otel: bool) -> list[Path]:
    """The wheels of the image grove, each once, by name; `has_otel` adds those that export traces."""
    pins = ["runtime.txt", *(["otel.txt"] if has_otel else [])]
    by_name = {wheel.name: wheel for name in pins for wheel in wheels(ROOT / "requirements" / name, cache, machine)}
    return [by_name[name] for name in sorted(by_name)]


def contents(cache: Path, machine: Machine, *, has_otel: bool = False) -> Iterator[Contents]:
    """Both images. Bytecode is the same on every machine, so this machine's own Python makes it."""
    here = this_machine()
    cache.mkdir(parents=True, exist_ok=True)
    own = [f"grove {__version__}"]

    base, parts = base_layer(cache, ("both", "main"), machine)
    builder = base if machine == here else base_layer(cache, ("both", "main"), here)[0]
    libraries, grove = Tree(), Tree()
    inside = [add_wheel(libraries, wheel, HOME) for wheel in pinned_wheels(cache, machine, has_otel=has_otel)]
    sources(grove)
    with python_of(builder, here) as python:
        for tree in (base, libraries, grove):
            compiled(tree, python)
    yield Contents("grove", [base, libraries, grove], MAIN, parts + inside + own, machine)

    small, parts = base_layer(cache, ("both",), machine)
    builder = small if machine == here else base_layer(cache, ("both",), here)[0]
    startup = Tree()
    sources(startup, "startup")
    with python_of(builder, here) as python:
        for tree in (small, startup):
            compiled(tree, python)
    yield Contents("grove-initc", [small, startup], STARTUP, parts + own, machine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["build", "roots", "lock"], default="build")
    parser.add_argument("--arch", choices=sorted(MACHINES), default=this_machine().name)
    parser.add_argument("--otel", action="store_true", help="with the packages that export traces")
    parser.add_argument("--target", type=Path, help="dist; dist/ARCH for another machine than this")
    parser.add_argument("--cache", type=Path, default=default_cache())
    given = parser.parse_args()
    machine = MACHINES[given.arch]
    target = given.target or ROOT / "dist" / ("" if machine == this_machine() else machine.name)
    if sys.version_info[:2] != (3, 11):
        print("the images run Python 3.11, and bytecode for it is made by one: use a python3.11", file=sys.stderr)
        return 2
    try:
        if given.action == "lock":
            write_lock(locked(machine.lock, machine), machine.lock)
            return 0
        target.mkdir(parents=True, exist_ok=True)
        for image in contents(given.cache, machine, has_otel=given.otel):
            image.unpack(target) if given.action == "roots" else image.write(target)
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
