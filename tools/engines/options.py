"""Records the options of an engine's own parser. Run it with the Python that has the engine.

    python -m tests.support.engine_arguments vllm > calls.json
    PYTHON_OF_VLLM tools/engines/options.py vllm < calls.json > tests/data/engine-options/vllm.json

The calls are those of samples and chart. The parser must accept each, else nothing is written. vLLM and SGLang with
PyTorch and CUDA's libraries take 7 GB of disk. No GPU is needed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
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
    parser = {"vllm": vllm, "sglang": sglang}[engine]()
    calls = json.load(sys.stdin)
    for call in calls:
        parser.parse_args(call)  # ends the process if it refuses
    print(f"{engine}: {len(calls)} calls accepted", file=sys.stderr)
    lines = ",\n".join(json.dumps(option(action)) for action in parser._actions)
    print(f'{{"version": "{importlib.metadata.version(engine)}", "options": [\n{lines}\n]}}')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
