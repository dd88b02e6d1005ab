"""YAML with the line of every value, so that a fault can say where it is."""

from __future__ import annotations

import re
from typing import Any

import yaml

Path = tuple[str | int, ...]
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


class NotYaml(ValueError):
    """The text is not YAML; the message has line and reason."""


def read(text: str) -> tuple[Any, dict[Path, int]]:
    """The decoded document, and the line (from 1) of each key and item by its path."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(f"line {line}: YAML has no character U+{error.character:04X}") from error
    try:
        node = loader.get_single_node()
        lines: dict[Path, int] = {(): 1}
        if node is None:
            return None, lines
        _note(node, (), lines, ())
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise NotYaml(f"line {line}: {error.problem or 'not YAML'}") from error
    except yaml.YAMLError as error:
        raise NotYaml(f"line 1: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()


def _note(node: yaml.Node, path: Path, lines: dict[Path, int], around: tuple[yaml.Node, ...]) -> None:
    """Notes the lines of all values in a node; `around` are the nodes that contain it."""
    if node in around:
        raise NotYaml(f"line {node.start_mark.line + 1}: the value contains itself")
    around = (*around, node)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here, line = (*path, str(key.value)), key.start_mark.line + 1
            if here in lines:
                raise NotYaml(f"line {line}: the key {key.value!r} is written twice; first in line {lines[here]}")
            lines[here] = line
            _note(value, here, lines, around)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*path, index)] = item.start_mark.line + 1
            _note(item, (*path, index), lines, around)


def parse_path(text: str) -> Path:
    """A path as msgspec writes it: `$.work.batch[0].every`."""
    steps = _STEP.findall(text.removeprefix("$"))
    return tuple(int(index) if index else name for name, index in steps)


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of a path, or of the nearest value around it."""
    while path not in lines:
        path = path[:-1]
    return lines[path]
