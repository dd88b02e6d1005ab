"""Pages for users name what there is, by the code's own spelling: labels, variables, reasons, values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from grove.api import env, labelsets
from grove.config import load_configuration
from grove.scheduler.model.config import load_configuration as load_scheduler_configuration
from grove.scheduler.policy import gang_state as gangs

ROOT = Path(__file__).parents[3]


def page(name: str) -> str:
    return (ROOT / f"docs/{name}.md").read_text()


def test_naming_has_every_label_and_variable_of_pods():
    clique = labelsets.member_clique({}, "chat", 0, "chat-0-engine", 1, "x", "chat-0-engine-0", "chat-0", "hash")
    own = {*labelsets.pod(clique, "chat", 0, "x", "x", "chat-0-engine-0", 0), *labelsets.pod_gang({}, {}, "chat", "s")}
    own |= {one["name"] for one in (*env.pod_variables("chat", 0, "x", "default"), *env.group_variables(4))}
    assert len(own) == 14 + 9
    assert {one for one in own if f"`{one}`" not in page("naming")} == set()


def test_troubleshooting_has_every_reason_a_gang_waits_for():
    reasons = {
        value
        for name, value in vars(gangs).items()
        if name.isupper() and isinstance(value, str) and re.fullmatch(r"([A-Z][a-z]+)+", value)
    }
    told = reasons - {gangs.GANG_SCHEDULED, gangs.BINDING, gangs.PODS_LOST}
    assert len(told) == 9
    assert {one for one in told if f"`{one}`" not in page("troubleshooting")} == set()


def test_values_of_the_install_page_exist():
    """In values.yaml, or, below `config` and `scheduler.config`, as a field of the file it becomes."""
    values = yaml.safe_load((ROOT / "charts/grove/values.yaml").read_text())
    table = page("install").partition("These are changed most often:")[2].partition("\n\nValues files")[0]
    paths = re.findall(r"^\| `([\w.]+)`", table, re.MULTILINE)
    assert len(paths) > 10
    for path in paths:
        if path.startswith("scheduler.config."):
            assert _has(load_scheduler_configuration(""), path.split(".")[2:]), path
        elif path.startswith("config."):
            assert _has(load_configuration(""), path.split(".")[1:]), path
        else:
            assert _in(values, path.split(".")), path


def test_the_install_page_has_the_requests_and_limits_of_the_chart():
    values = yaml.safe_load((ROOT / "charts/grove/values.yaml").read_text())
    for process, part in {
        "operator": values,
        "scheduler": values["scheduler"],
        "engine metrics, if enabled": values["engineMetrics"],
        "console, if enabled": values["console"],
    }.items():
        requests, limits = part["resources"]["requests"], part["resources"]["limits"]
        cost = f"{requests['cpu']} CPU, {requests['memory']} memory | {limits['memory']} memory"
        assert f"| {process} | {part['replicaCount']} | {cost} |" in page("install")


def _in(tree: Any, path: list[str]) -> bool:
    return not path or (isinstance(tree, dict) and path[0] in tree and _in(tree[path[0]], path[1:]))


def _has(section: Any, path: list[str]) -> bool:
    if not path:
        return True
    names = dict(zip(section.__struct_encode_fields__, section.__struct_fields__, strict=True))
    return path[0] in names and _has(getattr(section, names[path[0]]), path[1:])
