"""Help: alone it is help and exit code 0, every command ends with examples that parse, and -v stands anywhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from grove.cli.examples import EXAMPLES, epilog
from grove.cli.kubectl import kubectl_grove
from grove.cli.main import ASKING, COMMANDS, grove, run, without_verbose


@pytest.mark.parametrize("command", [grove, kubectl_grove])
def test_alone_it_is_help(command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run(command, [])
    said = capsys.readouterr()
    assert (end.value.code, said.err) == (0, "")
    assert said.out.startswith("Usage: ")
    assert "Ask a cluster" in said.out


def test_a_group_alone_is_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    groups = [name for name, command in commands() if isinstance(command, click.Group)]
    assert groups == ["rollout"]
    for name in groups:
        with pytest.raises(SystemExit) as end:
            run(grove, [name])
        said = capsys.readouterr()
        assert (end.value.code, said.err) == (0, "")
        assert said.out.startswith(f"Usage: grove {name} ")


def test_no_line_of_a_list_of_commands_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["rollout"]):
        with pytest.raises(SystemExit):
            run(grove, words)
        assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def commands() -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(grove)
    for name in {**COMMANDS, **ASKING}:
        command = grove.get_command(ctx, name)  # type: ignore[attr-defined]
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for inner in command.list_commands(ctx):
                found = command.get_command(ctx, inner)
                assert found is not None
                yield f"{name} {inner}", found


@pytest.mark.parametrize(("name", "command"), [pytest.param(*one, id=one[0]) for one in commands()])
def test_every_help_ends_with_examples(name: str, command: click.Command) -> None:
    help_ = command.get_help(click.Context(command, info_name=name))
    assert "Example" in help_
    if command.epilog == epilog(name):
        for line in EXAMPLES[name]:
            assert f"  {line}\n" in f"{help_}\n"


@pytest.mark.parametrize("line", sorted(line for lines in EXAMPLES.values() for line in lines))
def test_an_example_is_understood(line: str, tmp_path: Path) -> None:
    words = shlex.split(line.partition(" > ")[0])
    program = kubectl_grove if words[0] == "kubectl" else grove
    rest = words[2:] if words[0] == "kubectl" else words[1:]
    assert isinstance(program, click.Group)
    command: click.Command | None = program.get_command(click.Context(program), rest[0])
    assert command is not None, rest
    rest = rest[1:]
    if isinstance(command, click.Group) and rest and rest[0] in command.list_commands(click.Context(command)):
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
        assert command is not None
    files = [word for word in rest if word.endswith((".yaml", "journal"))]
    for name in files:  # an example names files that its reader has
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("journal") else path.write_text("")
        rest = [str(path) if word == name else word for word in rest]
    command.make_context(line, list(rest))


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        (["status", "-v"], (["status"], True)),
        (["-v", "status"], (["status"], True)),
        (["exec", "chat", "--", "ls", "-v"], (["exec", "chat", "--", "ls", "-v"], False)),
    ],
)
def test_verbose_stands_anywhere_but_in_another_programs_words(argv: list[str], want: tuple[list[str], bool]) -> None:
    assert without_verbose(argv) == want
