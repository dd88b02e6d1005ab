"""The page of the configuration has every field, with the default of the code and the value of the chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
import yaml

from grove import config as operator_config
from grove.api import duration
from grove.config import OperatorConfiguration
from grove.scheduler.model import config as scheduler_config
from grove.scheduler.model.config import SchedulerConfiguration
from grove.scheduler.model.seams import SCORES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/configuration.md").read_text()
VALUES = yaml.safe_load((ROOT / "charts/grove/values.yaml").read_text())
ROW = re.compile(r"^\| `([\w.\[\]]+)` \| (.+?) \| (.+?) \| .+ \|$", re.MULTILINE)
NOT_SET = "–"


class Field(NamedTuple):
    path: str
    default: Any


def fields(kind: type[msgspec.Struct], given: Any, prefix: str = "") -> Iterator[Field]:
    """Every field below `kind` that is not a section itself; `given` is the section with its defaults."""
    hints = get_type_hints(kind)
    for one in msgspec.structs.fields(kind):
        path, hint = f"{prefix}{one.encode_name}", hints[one.name]
        value = getattr(given, one.name)
        inner = next(iter(sections(hint)), None)
        if inner is None or value is None or isinstance(value, tuple):
            yield Field(path, value)
        if inner is not None:
            is_list = get_origin(hint) is tuple
            below = value if isinstance(value, msgspec.Struct) else inner()
            yield from fields(inner, below, f"{path}[]." if is_list else f"{path}.")


def sections(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    elif get_origin(hint) in (Union, UnionType, tuple):
        for one in get_args(hint):
            yield from sections(one)


def read(cell: str, like: Any) -> Any:
    """The value that a cell of the table shows, as `like` writes it."""
    if cell == "absent":
        return None
    if cell == "empty":
        return type(like)()
    text = cell.strip("`")
    return duration.parse(text).total_seconds() if is_duration(like) else yaml.safe_load(text)


def is_duration(value: Any) -> bool:
    return isinstance(value, operator_config.Duration | scheduler_config.Seconds)


def table(title: str) -> dict[str, tuple[str, str]]:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    return {path: (default, chart) for path, default, chart in ROW.findall(section)}


def in_chart(values: Any, path: str) -> Any:
    for step in path.split("."):
        values = values.get(step) if isinstance(values, dict) else None
    return values


OPERATOR = list(fields(OperatorConfiguration, operator_config.load_configuration("")))
SCHEDULER = list(fields(SchedulerConfiguration, scheduler_config.load_configuration("")))
CASES = [
    pytest.param("OperatorConfiguration", OPERATOR, VALUES["config"], id="operator"),
    pytest.param("SchedulerConfiguration", SCHEDULER, VALUES["scheduler"]["config"], id="scheduler"),
]


@pytest.mark.parametrize(("title", "known", "values"), CASES)
def test_the_page_has_every_field_and_no_other(title: str, known: list[Field], values: Any) -> None:
    assert len(known) > 25
    assert sorted(table(title)) == sorted(one.path for one in known)


@pytest.mark.parametrize(("title", "known", "values"), CASES)
def test_the_page_has_the_default_of_the_code(title: str, known: list[Field], values: Any) -> None:
    rows = table(title)
    shown = {one.path: read(rows[one.path][0], one.default) for one in known}
    wanted = {one.path: one.default if is_duration(one.default) else plain(one.default) for one in known}
    assert {path: plain(value) for path, value in shown.items()} == wanted


@pytest.mark.parametrize(("title", "known", "values"), CASES)
def test_the_page_has_the_value_of_the_chart(title: str, known: list[Field], values: Any) -> None:
    rows, wanted, shown = table(title), {}, {}
    for path, _ in known:
        wanted[path], cell = in_chart(values, path), rows[path][1]
        shown[path] = None if cell == NOT_SET else [] if cell == "empty" else yaml.safe_load(cell.strip("`"))
    assert shown == wanted


def plain(value: Any) -> Any:
    return msgspec.to_builtins(list(value) if isinstance(value, tuple) else value)


def test_the_page_has_every_score_with_its_weight() -> None:
    for name, weight in SCORES.items():
        assert re.search(rf"`{re.escape(name)}` (?:\| {weight} \||\({weight}\))", PAGE), name
