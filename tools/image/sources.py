"""Where the contents of images come from: Debian packages by version and hash, wheels by hash, and this checkout.

Nothing is installed or run: packages and wheels are archives, and only their files are taken.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import platform
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


@dataclass(frozen=True)
class Machine:
    """A machine that images run on, as Debian, wheels and ELF files name it."""

    name: str
    libraries: str
    """Folder of its libraries below usr/lib."""
    loader: str
    wheel: str
    elf: int
    lock: Path

    @property
    def platforms(self) -> tuple[str, ...]:
        tags = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", *(("manylinux_2_5",) if self == AMD64 else ()))
        return (*(f"{tag}_{self.wheel}" for tag in tags), "any")


AMD64 = Machine("amd64", "x86_64-linux-gnu", "lib64/ld-linux-x86-64.so.2", "x86_64", 62, LOCK)
ARM64 = Machine("arm64", "aarch64-linux-gnu", "lib/ld-linux-aarch64.so.1", "aarch64", 183, HERE / "debian-arm64.lock")
MACHINES = {machine.name: machine for machine in (AMD64, ARM64)}


def this_machine() -> Machine:
    return next((machine for machine in MACHINES.values() if machine.wheel == platform.machine()), AMD64)


class Missing(Exception):
    """Something an image is made of cannot be had; the text says what to do."""


@dataclass(frozen=True)
class Package:
    where: str
    """`both` images, or `main` only."""
    name: str
    version: str
    sha256: str
    machine: Machine = AMD64


def locked(lock: Path = LOCK, machine: Machine = AMD64) -> list[Package]:
    lines = [line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return [Package(*line, machine=machine) for line in lines]


def write_lock(packages: Iterable[Package], lock: Path = LOCK) -> None:
    """Writes the newest version of each package that apt lists."""
    head = [line for line in lock.read_text().splitlines() if line.startswith("#")]
    newest = [Package(package.where, package.name, *_newest(package), machine=package.machine) for package in packages]
    lock.write_text("\n".join([*head, *(f"{p.where} {p.name} {p.version} {p.sha256}" for p in newest)]) + "\n")


def default_cache() -> Path:
    """The folder that keeps downloads between builds."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grove" / "image"


def _newest(package: Package) -> tuple[str, str]:
    options = _apt_options(package.machine, default_cache())
    shown = subprocess.run(
        ["apt-cache", *options, "show", "--no-all-versions", package.name], capture_output=True, text=True, check=False
    )
    version, digest = (re.search(rf"^{key}: (.*)$", shown.stdout, re.MULTILINE) for key in ("Version", "SHA256"))
    if version is None or digest is None:
        raise Missing(f"apt lists no package {package.name}; run apt-get update first")
    return version[1], digest[1]


def _apt_options(machine: Machine, cache: Path) -> list[str]:
    """Options by which apt reads packages of another machine; its own lists and settings stay as they are."""
    if machine == this_machine():
        return []
    state = cache / f"apt-{machine.name}"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    options = [
        f"APT::Architecture={machine.name}",
        f"APT::Architectures={machine.name}",
        "Acquire::Languages=none",
        f"Dir::State::Lists={state / 'lists'}",
        f"Dir::Cache={state}",
        "APT::Sandbox::User=root",
    ]
    words = [word for option in options for word in ("-o", option)]
    if not any((state / "lists").glob("*_Packages*")):
        done = subprocess.run(["apt-get", *words, "update", "-qq"], capture_output=True, text=True, check=False)
        if not any((state / "lists").glob("*_Packages*")):
            raise Missing(f"apt-get has no lists for {machine.name}: {done.stderr.strip().splitlines()[-1:]}")
    return words


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
                [
                    "apt-get",
                    *_apt_options(package.machine, cache),
                    "download",
                    "-qq",
                    f"{package.name}={package.version}",
                ],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
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


def foreign_programs(tree: Tree, machine: Machine) -> list[str]:
    """Programs and libraries of a tree that another machine than this one runs."""
    programs = ((path, content) for path, (content, _) in tree.files.items() if content[:4] == b"\x7fELF")
    return sorted(path for path, content in programs if int.from_bytes(content[18:20], "little") != machine.elf)


def _ar(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an ar archive, which is what a .deb is."""
    at = 8
    while at < len(content):
        name, size = content[at : at + 16].decode().strip().rstrip("/"), int(content[at + 48 : at + 58])
        yield name, content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def wheels(requirements: Path, cache: Path, machine: Machine = AMD64) -> list[Path]:
    """The wheels of a requirements file for the images' Python, each by its hash; fetched once."""
    suffix = "" if machine == AMD64 else f"-{machine.name}"
    folder = cache / f"{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}{suffix}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            words = [word for platform_tag in machine.platforms for word in ("--platform", platform_tag)]
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--require-hashes",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    "--python-version",
                    "3.11",
                    "--implementation",
                    "cp",
                    *words,
                    "-r",
                    str(requirements),
                    "-d",
                    fresh,
                ],
                capture_output=True,
                text=True,
                check=False,
            )
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
