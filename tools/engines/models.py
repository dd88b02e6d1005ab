"""Tiny models with random weights, made here because no weights can be downloaded without a model hub.

A model has a real tokenizer and a real architecture (Llama), so an engine loads and computes it like any other. The
text that it writes means nothing. The same seed gives the same bytes.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.image.sources import LOCK, Missing, Package, add_package, locked

from grove.local.oci import Tree

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "models.txt"
PROGRAM = HERE / "tiny.py"
SEEDS = {"tiny-a.gguf": 1, "tiny-b.gguf": 2}
TOPICS = "usr/lib/python3.11/pydoc_data/topics.py"


def files(name: str, cache: Path) -> dict[str, bytes]:
    """A model's files by their path below /models: a GGUF file, or a folder as model hubs have it, without weights."""
    folder = _made(cache)
    if name in SEEDS:
        return {name: (folder / name).read_bytes()}
    return {f"{name}/{file.name}": file.read_bytes() for file in sorted((folder / name).iterdir())}


def _made(cache: Path) -> Path:
    """The folder with every model; makes them once."""
    folder = cache / f"models-{key()}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            made = Path(work) / "made"
            made.mkdir()
            (made / "corpus.json").write_text(json.dumps(corpus(_manual(), cache)))
            python = _environment(Path(work) / "venv")
            _run(python, str(PROGRAM), str(made), json.dumps(SEEDS))
            (made / "corpus.json").unlink()
            made.rename(folder)
    return folder


def _manual() -> Package:
    """The Debian package that has Python's manual."""
    (manual,) = (package for package in locked(LOCK) if package.name == "libpython3.11-stdlib")
    return manual


def key() -> str:
    """A hash over everything that the models are made of."""
    seen = (PROGRAM.read_bytes(), REQUIREMENTS.read_bytes(), _manual().sha256.encode(), repr(SEEDS).encode())
    return hashlib.sha256(b"".join(seen)).hexdigest()[:12]


def corpus(package: Package, cache: Path) -> list[str]:
    """The lines of Python's own manual, as the Debian package has it: text that the tokenizer learns from."""
    tree = Tree()
    add_package(tree, package, cache, lambda path: path != TOPICS)
    source = tree.files[TOPICS][0].decode()
    (literal,) = re.findall(r"^topics = (\{.*\})", source, re.DOTALL | re.MULTILINE)
    return [line for text in ast.literal_eval(literal).values() for line in text.splitlines()]


def _environment(folder: Path) -> str:
    """The Python of a fresh virtual environment with the pinned packages."""
    _run(sys.executable, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    _run(python, "-m", "pip", "install", "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS))
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-600:]}")
