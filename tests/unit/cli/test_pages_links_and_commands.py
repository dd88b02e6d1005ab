"""What is written for people is true: links lead somewhere, commands and their flags exist, and none is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.conftest import LOOPS

from grove.cli.main import ASKING, COMMANDS, LazyGroup, grove
from grove.demo.scenario import VERBS

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "samples/**/*.md", "tests/*.md") for page in ROOT.glob(pattern)
)
CALL = re.compile(r"(?:^|[\s/(`|]|kubectl[ -])grove ([a-z]+)((?: [^`|\n]*)?)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [one for one in targets if "://" not in one and not (page.parent / one).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_in_the_project_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|tools|docs|charts|samples|requirements)/[^\s`<>{}…]*)`", page.read_text())
    assert [one for one in named if not list(ROOT.glob(one.partition("::")[0].rstrip("/")))] == []


def test_commands_that_run_a_test_file_select_tests_of_it() -> None:
    """A behaviour test has an id for each cluster that it runs on, so `-k` with another word selects no test."""
    words = [word for page in PAGES for word in re.findall(r"pytest [^\n#]*-k (\w+)", page.read_text())]
    assert sorted(set(words)) == sorted(LOOPS)


def calls(text: str) -> Iterator[tuple[str, list[str]]]:
    """Commands in code, each with its long flags."""
    code = re.findall(r"```(?:sh|console)?\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    for piece in code:
        for line in piece.splitlines():
            found = CALL.findall(line.partition("#")[0]) if not line.startswith("helm ") else []
            first, _, after = line.partition(" ")
            if first in COMMANDS or first in ASKING:
                found.append((first, f" {after}"))  # the command line's own page leaves `grove` out
            for name, rest in found:
                yield name, re.findall(r"(?<![\w-])(--[a-z-]+)", rest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_is_named_exists_with_its_flags(page: Path) -> None:
    group = LazyGroup("grove")
    ctx = click.Context(grove)
    for name, flags in calls(page.read_text()):
        command = group.get_command(ctx, name)
        assert command is not None, f"there is no command {name}"
        below = command.commands.values() if isinstance(command, click.Group) else ()
        params = [one for step in (command, *below) for one in step.params]
        known = {option for one in params for option in (*one.opts, *one.secondary_opts)}
        assert set(flags) <= known | {"--help"}, f"{name} has no {sorted(set(flags) - known)}"


def test_the_command_line_s_page_tells_of_every_command_and_every_step_of_a_scenario() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in {**COMMANDS, **ASKING} if f"`{name}" not in page and name != "version"] == []
    assert [verb for verb in VERBS if f"`{verb}`" not in page] == []
