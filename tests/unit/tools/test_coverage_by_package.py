"""`make coverage`: which package a module is in, which lines are listed, and what ends in a failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tools.coverage_by_package import main, package_of, ranges


def report(**reached: int) -> dict[str, Any]:
    """A report of modules with a hundred lines and ten branches each, as `coverage json` writes it."""
    return {
        "files": {
            f"src/grove/{name.replace('__', '/')}.py": {
                "summary": {
                    "num_statements": 100,
                    "covered_lines": lines,
                    "num_branches": 10,
                    "covered_branches": 5,
                },
                "missing_lines": list(range(1, 101 - lines)),
            }
            for name, lines in reached.items()
        }
    }


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("src/grove/kube/http.py", "kube", id="a folder is a package"),
        pytest.param(
            "src/grove/scheduler/solve/fill.py", "scheduler/solve", id="a folder of the scheduler is a package"
        ),
        pytest.param(
            "src/grove/operator/shared/cluster/x.py", "operator/shared", id="a folder in a package belongs to it"
        ),
        pytest.param("src/grove/operator/wiring.py", "operator", id="a module of the operator itself"),
        pytest.param("src/grove/config.py", "grove", id="a module of grove itself"),
    ],
)
def test_a_module_belongs_to_a_package(path: str, want: str) -> None:
    assert package_of(path) == want


@pytest.mark.parametrize(
    ("numbers", "want"),
    [
        pytest.param([1, 2, 3, 7], "1-3, 7", id="neighbours together"),
        pytest.param([9, 8, 4], "4, 8-9", id="in order"),
        pytest.param([], "", id="nothing missing"),
    ],
)
def test_missing_lines_are_listed_as_spans(numbers: list[int], want: str) -> None:
    assert ranges(numbers) == want


@pytest.mark.parametrize(
    ("modules", "code", "told"),
    [
        pytest.param({"kube__http": 90, "sim__store": 99}, 0, "", id="every package at the aim"),
        pytest.param({"kube__http": 89, "sim__store": 99}, 1, "kube", id="one package below it"),
        pytest.param({"kube__http": 89, "kube__watch": 91}, 0, "", id="a package counts as a whole"),
    ],
)
def test_a_package_below_the_aim_is_a_failure(
    modules: dict[str, int], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "coverage.json").write_text(json.dumps(report(**modules)))
    assert main([str(tmp_path / "coverage.json")]) == code
    out, err = capsys.readouterr()
    assert err == (f"less than 90 % of the lines are reached in {told}\n" if told else "")
    assert ("kube/http.py: 1-11" in out) == (modules["kube__http"] < 90)
