"""Records the options of an engine's own parser. Run it with the Python that has the engine.

    python -m tests.support.engine_arguments vllm > calls.json
    PYTHON_OF_VLLM tools/engines/options.py vllm < calls.json > tests/data/engine-options/vllm.json

The calls are those of samples and chart. The parser must accept each, else nothing is written. vLLM and SGLang with
PyTorch and CUDA's libraries take 7 GB of disk. No GPU is needed. Dynamo's parsers and SGLang's router need only their
own wheels, without dependencies, and uvloop, packaging, PyYAML, msgspec and pydantic. dynamo.vllm hands the options
that it does not have to vLLM. Those are compared with vLLM's own record.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable
from typing import Any


def vllm() -> argparse.ArgumentParser:
    platforms: Any = importlib.import_module("vllm.platforms")
    if platforms.current_platform.is_unspecified():  # no GPU: as vLLM's own benchmarks do
        platforms.current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()
    parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    made: argparse.ArgumentParser = importlib.import_module("vllm.entrypoints.common.cli_args").make_arg_parser(parser)
    return made


def sglang() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


class Built(Exception):
    """The parser that a program builds inside a function."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def built_by(module: str, function: str, *arguments: list[str]) -> argparse.ArgumentParser:
    """The parser with which a function of a program would read its arguments."""

    def stop(parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        raise Built(parser)

    kept = argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args
    try:
        argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_known_args = stop  # type: ignore
        getattr(importlib.import_module(module), function)(*arguments)
    except Built as built:
        return built.parser
    finally:
        argparse.ArgumentParser.parse_args, argparse.ArgumentParser.parse_known_args = kept  # type: ignore
    raise SystemExit(f"{module}.{function} reads no arguments")


def dynamo_vllm() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    groups = "dynamo.common.configuration.groups.runtime_args"
    importlib.import_module(groups).DynamoRuntimeArgGroup().add_arguments(parser)
    importlib.import_module("dynamo.vllm.backend_args").DynamoVllmArgGroup().add_arguments(parser)
    return parser


PARSERS: dict[str, tuple[str, Callable[[], argparse.ArgumentParser]]] = {
    "vllm": ("vllm", vllm),
    "sglang": ("sglang", sglang),
    "sglang-router": ("sglang-router", lambda: built_by("sglang_router.launch_router", "parse_router_args", [])),
    "dynamo.frontend": ("ai-dynamo", lambda: built_by("dynamo.frontend.main", "parse_args")),
    "dynamo.mocker": ("ai-dynamo", lambda: built_by("dynamo.mocker.args", "parse_args", [])),
    "dynamo.vllm": ("ai-dynamo", dynamo_vllm),
}
"""By name of an engine: the package that has its version, and what makes its parser."""


def option(action: argparse.Action) -> dict[str, Any]:
    """What a test needs to know of an option: its names, how many values it takes, and which."""
    choices = None if action.choices is None or action.nargs == 0 else sorted(str(choice) for choice in action.choices)
    kind = getattr(action.type, "__name__", "")
    return {
        "names": list(action.option_strings) or [action.dest],
        "nargs": action.nargs,
        "type": kind if kind in ("int", "float") else "",
        "choices": choices,
    }


def main(arguments: list[str]) -> int:
    (engine,) = arguments
    package, make = PARSERS[engine]
    parser = make()
    calls = json.load(sys.stdin)
    for call in calls:  # a parser ends the process if it refuses
        (parser.parse_known_args if engine == "dynamo.vllm" else parser.parse_args)(call)
    print(f"{engine}: {len(calls)} calls accepted", file=sys.stderr)
    lines = ",\n".join(json.dumps(option(action)) for action in parser._actions)
    print(f'{{"version": "{importlib.metadata.version(package)}", "options": [\n{lines}\n]}}')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
