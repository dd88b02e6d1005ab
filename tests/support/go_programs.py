"""Programs of a public Go module, built once into the cache, with the module's CRDs beside them; and how to run one.

The module's own go.mod has replace directives, which count only where it is the main module. So its source is copied.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from grove.local.binaries import cache_root, to_stderr
from grove.local.gobuild import find_go

CRDS = "crds"


@dataclass(frozen=True)
class GoPrograms:
    """`programs` gives packages by program; `crds` are folders of the module. The variable names another place."""

    name: str
    module: str
    version: str
    programs: Mapping[str, str]
    crds: tuple[str, ...]
    variable: str

    @property
    def directory(self) -> Path:
        """Where the programs are or will be."""
        return Path(os.environ.get(self.variable) or cache_root().parent / self.name / self.version)

    @property
    def is_built(self) -> bool:
        built = all(os.access(self.directory / program, os.X_OK) for program in self.programs)
        return built and (self.directory / CRDS).is_dir()

    def build(self) -> None:
        root = self.directory
        root.mkdir(parents=True, exist_ok=True)
        go = str(find_go(cache_root(), to_stderr))
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}

        def run(*command: str, cwd: Path) -> str:
            return subprocess.run(
                [go, *command], cwd=cwd, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        downloaded = json.loads(run("mod", "download", "-json", f"{self.module}@v{self.version}", cwd=root))
        source = root / "source"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(downloaded["Dir"], source, copy_function=shutil.copy)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
        for name, package in self.programs.items():
            begun = time.monotonic()
            to_stderr(f"building {name} {self.version} …")
            run("build", "-trimpath", "-ldflags", "-s -w", "-o", str(root / name), package, cwd=source)
            to_stderr(f"building {name} {self.version} … {time.monotonic() - begun:.0f} s")
        shutil.rmtree(root / CRDS, ignore_errors=True)
        (root / CRDS).mkdir()
        for folder in self.crds:
            shutil.copytree(source / folder, root / CRDS, dirs_exist_ok=True)
        shutil.rmtree(source)

    def main(self) -> None:
        """Builds what is not built, and prints where it is."""
        if not self.is_built:
            try:
                self.build()
            except subprocess.CalledProcessError as error:
                sys.exit(f"{self.name} could not be built: {error}")
        print(self.directory)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tail(log: Path) -> str:
    return log.read_text()[-1500:]


@asynccontextmanager
async def running(name: str, *arguments: str, log: Path, **environment: str) -> AsyncIterator[None]:
    """A program at work; what it said last is shown when it ends by itself."""
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            name, *arguments, stdout=said, stderr=said, env={**os.environ, **environment}
        )
        try:
            yield
            assert process.returncode is None, tail(log)
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 10)
                except TimeoutError:
                    process.kill()
                    await process.wait()
