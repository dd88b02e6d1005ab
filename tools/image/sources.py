"""Where the contents of images come from: Debian packages by version and hash, wheels by hash, and this checkout.

Nothing is installed or run: packages and wheels are archives, and only their files are taken.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grove.local.oci import Tree

HERE = Path(__file__).parent
LOCK = HERE / "debian.lock"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_5_x86_64", "any")


class Missing(Exception):
    """Something an image is made of cannot be had; the text says what to do."""


@dataclass(frozen=True)
class Package:
    where: str
    """`both` images, or `main` only."""
    name: str
    version: str
    sha256: str


def locked(lock: Path = LOCK) -> list[Package]:
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return [Package(*line) for line in lines]


def write_lock(packages: Iterable[Package], lock: Path = LOCK) -> None:
    """Writes the newest version of each package that apt lists."""
    head = [line for line in lock.read_text().splitlines() if line.startswith("#")]
    found = [Package(one.where, one.name, *_newest(one.name)) for one in packages]
    lock.write_text("\n".join([*head, *(f"{p.where} {p.name} {p.version} {p.sha256}" for p in found)]) + "\n")


def _newest(name: str) -> tuple[str, str]:
    shown = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", name], capture_output=True, text=True, check=False
    )
    version, digest = (re.search(rf"^{key}: (.*)$", shown.stdout, re.MULTILINE) for key in ("Version", "SHA256"))
    if version is None or digest is None:
        raise Missing(f"apt knows no package {name}; run apt-get update first")
    return version[1], digest[1]


def debian_files(package: Package, cache: Path) -> Iterator[tuple[str, tarfile.TarInfo, bytes]]:
    """The files of a package as (path, entry, content); /lib and /usr/lib are one folder, as on any Debian."""
    deb = _fetched(package, cache)
    for name, content in _ar(deb.read_bytes()):
        if name.startswith("data.tar"):
            raw = lzma.decompress(content) if name.endswith("xz") else content
            with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
                for entry in tar:
                    path = entry.name.removeprefix("./").rstrip("/")
                    path = re.sub(r"^(lib|lib64|bin|sbin)(?=/|$)", r"usr/\1", path)
                    if path:
                        file = tar.extractfile(entry) if entry.isfile() else None
                        yield path, entry, file.read() if file else b""


def add_package(tree: Tree, package: Package, cache: Path, is_unused: Callable[[str], object]) -> str:
    """Puts a Debian package's files into a tree, except those that are unused; the package's name and version."""
    for path, entry, content in debian_files(package, cache):
        if is_unused(path):
            continue
        if entry.isfile():
            tree.add(path, content, 0o755 if entry.mode & 0o111 else 0o644)
        elif entry.issym():
            tree.links[path] = entry.linkname
        elif entry.islnk():
            source = re.sub(r"^(\./)?(lib|lib64|bin|sbin)/", r"usr/\2/", entry.linkname).removeprefix("./")
            tree.files[path] = tree.files[source]
    return f"{package.name} {package.version}"


def _fetched(package: Package, cache: Path) -> Path:
    target = cache / f"{package.sha256}.deb"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            done = subprocess.run(
                ["apt-get", "download", "-qq", f"{package.name}={package.version}"], cwd=folder, capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            got = list(Path(folder).glob("*.deb"))
            if not got:
                why = done.stderr.strip().splitlines()[-1:] or ["apt-get gave no reason"]
                raise Missing(
                    f"{package.name} {package.version} cannot be had ({why[0]}): apt-get update, or, when Debian has "
                    "moved on, python tools/image lock"
                )
            if hashlib.sha256(got[0].read_bytes()).hexdigest() != package.sha256:
                raise Missing(f"{package.name} {package.version} is not what debian.lock says")
            got[0].rename(target)
    return target


def _ar(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an ar archive, which is what a .deb is."""
    at = 8
    while at < len(content):
        name, size = content[at : at + 16].decode().strip().rstrip("/"), int(content[at + 48 : at + 58])
        yield name, content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def wheels(requirements: Path, cache: Path) -> list[Path]:
    """The wheels of a requirements file for the images' Python, each by its hash; fetched once."""
    folder = cache / hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            words = [word for one in PLATFORMS for word in ("--platform", one)]
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes",
                 "--no-deps", "--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp", *words,
                 "-r", str(requirements), "-d", fresh],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise Missing(f"the wheels cannot be had: {done.stderr.strip().splitlines()[-1:]}")
            Path(fresh).rename(folder)
            Path(fresh).mkdir()
    return sorted(folder.glob("*.whl"))


_NOT_NEEDED = re.compile(
    r"(^|/)(tests?|testing/tests|_pyinstaller|f2py|include)/|\.(pyi|pxd|pyx|h|c|a)$|/direct_url.json$"
)


def add_wheel(tree: Tree, wheel: Path, folder: str, data: str = "") -> str:
    """Puts a wheel's modules into a folder, and its data files into `data` if that is given; its name and version."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in sorted(archive.namelist()):
            if entry.endswith("/") or _NOT_NEEDED.search(entry):
                continue
            inside = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", entry)
            if data and (placed := re.sub(r"^[^/]+\.data/data/", "", entry)) != entry:
                tree.add(f"{data}/{placed}", archive.read(entry), 0o755)
            elif ".data/" not in inside:
                tree.add(f"{folder}/{inside}", archive.read(entry), 0o755 if inside.endswith(".so") else 0o644)
    name, version = wheel.name.split("-")[:2]
    return f"{name} {version}"
