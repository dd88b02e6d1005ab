"""How the samples and the inference chart start vLLM, SGLang and Dynamo, and what their parsers accept.

`tests/data/engine-options` has the options that `tools/engines/options.py` recorded from the real parsers.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from grove.api import env
from grove.api.meta import Json

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "samples").glob("*.yaml")),
    *sorted((ROOT / "samples/engines").glob("*/manifest.yaml")),
    *sorted((ROOT / "charts/inference/examples").glob("*.yaml")),
]
PROGRAMS = {
    "vllm": ["vllm", "serve"],
    "sglang": ["python3", "-m", "sglang.launch_server"],
    "sglang-router": ["python3", "-m", "sglang_router.launch_router"],
    "dynamo.frontend": ["python3", "-m", "dynamo.frontend"],
    "dynamo.mocker": ["python3", "-m", "dynamo.mocker"],
    "dynamo.vllm": ["python3", "-m", "dynamo.vllm"],
}
INNER = {"dynamo.vllm": "vllm"}
"""Engines that hand the options that they do not have to another one."""
TYPES = {"int": int, "float": float}
RECORD = '#!/bin/sh\nprintf "%s\\0" "${0##*/}" "$@"\n'
"""A program that writes how it was called."""


@dataclass(frozen=True)
class Call:
    """A container that runs an engine: its file and clique, the image, and the words after the program's name."""

    engine: str
    where: str
    image: str
    arguments: tuple[str, ...]


class Refused(Exception):
    """What the parser says about words that it does not take."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def recorded(engine: str) -> Json:
    """The version of an engine and the options of its parser."""
    found: Json = json.loads((ROOT / "tests/data/engine-options" / f"{engine}.json").read_text())
    return found


def parser(engine: str) -> Parser:
    """A parser with the options of the engine's own."""
    made = Parser(allow_abbrev=False, add_help=False)
    options = {name: one for one in recorded(engine)["options"] for name in one["names"]}
    inner = recorded(INNER[engine])["options"] if engine in INNER else []
    inner = [one for one in inner if one["names"][0].startswith("-") and not set(one["names"]) & set(options)]
    for one in [*recorded(engine)["options"], *inner]:
        fields: dict[str, Any] = {"choices": one["choices"], "type": TYPES.get(one["type"])}
        if one["nargs"] == 0:
            fields = {"action": "store_true"}
        elif one["nargs"] is not None:
            fields["nargs"] = one["nargs"]
        made.add_argument(*one["names"], **fields)
    return made


def calls() -> list[Call]:
    """Every start of an engine, with the words as the kubelet and the shell of the container pass them."""
    with tempfile.TemporaryDirectory() as folder:
        for program, *_ in PROGRAMS.values():
            (Path(folder) / program).write_text(RECORD)
            (Path(folder) / program).chmod(0o755)
        return [call for file in FILES for call in _of_file(file, folder)]


def _of_file(file: Path, programs: str) -> Iterator[Call]:
    for one in yaml.safe_load_all(file.read_text()):
        if not one or one["kind"] != "PodCliqueSet":
            continue
        for clique in one["spec"]["template"]["cliques"]:
            for container in clique["spec"]["podSpec"]["containers"]:
                words = _words(container, programs)
                for engine, begin in PROGRAMS.items():
                    if words[: len(begin)] == begin:
                        where = f"{file.relative_to(ROOT)} {clique['name']}"
                        yield Call(engine, where, container["image"], tuple(words[len(begin) :]))


def _words(container: Json, programs: str) -> list[str]:
    values = {name: "x" for name in vars(env).values() if isinstance(name, str) and name.startswith("GROVE_")}
    values[env.PCLQ_POD_INDEX] = "0"
    for one in container.get("env", ()):
        values[one["name"]] = _expanded(one.get("value", "x"), values)
    words = [_expanded(one, values) for one in [*container.get("command", ()), *container.get("args", ())]]
    if words[:1] == ["-m"]:
        return ["python3", *words]  # the entry point of the image
    if words[:1] != ["sh"]:
        return words
    done = subprocess.run(
        ["/bin/sh", *words[1:]], env={**values, "PATH": programs}, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\0")[:-1]


def _expanded(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: values.get(found[1], found[0]), text)


if __name__ == "__main__":
    print(json.dumps([call.arguments for call in calls() if call.engine == sys.argv[1]]))
