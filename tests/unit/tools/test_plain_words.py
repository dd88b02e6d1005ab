"""The language check finds what it should, and nothing in code and links."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_words", ROOT / "tools" / "plain_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param("The operator deletes the pod.", [], id="a plain sentence"),
        pytest.param("First line.\nNobody asked.", ["'Nobody' (personification)"], id="a person"),
        pytest.param("Words " * 26 + ".", ["26 words"], id="a long sentence"),
        pytest.param("Words " * 25 + ". " + "Words " * 25 + ".", [], id="two shorter sentences"),
        pytest.param("The field `nobody` is empty.", [], id="code in a sentence"),
        pytest.param("```\nnobody\n```", [], id="a block of code"),
        pytest.param("1. x\n\n   ```sh\n   nobody\n   ```", [], id="a block of code in a list"),
        pytest.param("| nobody | told |", [], id="a table"),
        pytest.param("name    nobody told", [], id="aligned columns"),
        pytest.param("├── nobody\n└── told", [], id="a drawn tree"),
        pytest.param("[page](nobody.md)", [], id="the target of a link"),
    ],
)
def test_what_is_found(words: ModuleType, text: str, rules: list[str]) -> None:
    assert [found.rule for found in words.check(Path("page.md"), text)] == rules


def test_docstrings_of_modules_classes_and_attributes_are_read(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""Nobody."""\n\nx = 1\n"""Somebody."""\n\nclass C:\n    """It wants."""\n\ny = "told"\n')
    assert sorted(found.line for found in words.check_code(module)) == [1, 4, 7]


def test_comments_and_messages_are_read(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('x = f"{x} is made anew"\n# Nobody.\nx = x["room"]\n')
    assert sorted((found.line, found.rule) for found in words.check_code(module)) == [
        (1, "'anew' (riddle)"),
        (2, "'Nobody' (personification)"),
    ]


def test_comments_on_neighbouring_lines_are_one_text(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"x = 1  # {'word ' * 13}\n# {'word ' * 13}\n# {'word ' * 13}\ny = 1\n# {'word ' * 13}\n")
    assert [(found.line, found.rule) for found in words.check_code(module)] == [(2, "26 words")]


def test_long_messages_are_found_unless_they_have_several_lines(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"x = '{'word ' * 31}'\ny = '{'word ' * 30}'\nz = '{'word ' * 20}\\n{'word ' * 20}'\n")
    assert [(found.line, found.rule) for found in words.check_code(module)] == [(1, "31 words")]


def test_code_in_a_docstring_is_not_read(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('def f():\n    """Plain.\n\n        nobody\n\n        nobody\n\n    Nobody.\n    """\n')
    assert [found.line for found in words.check_code(module)] == [8]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param("def f():\n    room = 1", [2], id="a variable"),
        pytest.param("def f(x, is_told):\n    pass", [1], id="an argument"),
        pytest.param("class NoRoom:\n    pass", [1], id="a part of the name of a class"),
        pytest.param("class C:\n    def f(self):\n        self._seats = 1", [3], id="an attribute"),
        pytest.param("NOBODY_WAITS = 1", [1], id="a constant"),
        pytest.param("headroom = broom", [], id="part of a longer word"),
        pytest.param("x = math.floor(1)", [], id="a name of another module"),
    ],
)
def test_names_that_a_module_defines_are_read(words: ModuleType, tmp_path: Path, code: str, lines: list[int]) -> None:
    module = tmp_path / "module.py"
    module.write_text(code)
    assert [found.line for found in words.check_code(module)] == lines


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        pytest.param("def f():\n    found = 1", [2], id="an assignment"),
        pytest.param("found: int = 1", [1], id="with its type"),
        pytest.param("for one in x:\n    pass", [1], id="a loop"),
        pytest.param("y = [\n    one for one in x]", [2], id="a comprehension"),
        pytest.param("if (found := x):\n    pass", [1], id="an assignment in a condition"),
        pytest.param("def f(one):\n    pass", [1], id="an argument"),
        pytest.param("y = lambda said: 1", [1], id="an argument of a lambda"),
        pytest.param("with x as found, y as one:\n    pass", [1, 1], id="a block"),
        pytest.param("try:\n    pass\nexcept E as one:\n    pass", [3], id="an error"),
        pytest.param("match x:\n    case [one, *found]:\n        pass", [2, 2], id="patterns"),
        pytest.param("match x:\n    case {**found}:\n        pass", [2], id="the rest of a pattern"),
        pytest.param("class C:\n    def f(self):\n        found = 1", [3], id="a variable of a method"),
        pytest.param("found_pods = one_pod = foundation = 1", [], id="a name that says what it is"),
        pytest.param("y = x.found + found(one)", [], id="a use"),
        pytest.param("class C:\n    x = [one for one in y]", [2], id="a comprehension in a class"),
        pytest.param("class C:\n    found: int = 1\n    one = 2", [], id="fields of a class"),
        pytest.param("x.found = 1", [], id="an attribute"),
        pytest.param("def found():\n    pass", [], id="a function"),
    ],
)
def test_variables_that_do_not_name_their_value_are_found(
    words: ModuleType, tmp_path: Path, code: str, lines: list[int]
) -> None:
    module = tmp_path / "module.py"
    module.write_text(code)
    assert [found.line for found in words.check_code(module)] == lines


def test_a_variable_without_a_noun_is_named(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("for one in pods: pass")
    (found,) = words.check_code(module)
    assert (found.rule, found.text) == ("'one' (no noun)", "the variable one does not name its value")


def test_docstrings_comments_and_names_of_tests_are_read_but_not_their_data(words: ModuleType, tmp_path: Path) -> None:
    module = tmp_path / "test_module.py"
    module.write_text('"""Nobody."""\n# Somebody.\nROOM = "nobody asks"\ndef test_it_is_told() -> None: ...\n')
    assert sorted(found.line for found in words.check_tests(module)) == [1, 2, 4]


def test_comments_of_charts_and_scripts_are_read(words: ModuleType, tmp_path: Path) -> None:
    chart = tmp_path / "values.yaml"
    chart.write_text("room: 1  # so many\n{{/* Whoever asks. */}}\n// put right\nwants: nobody\n")
    assert [found.line for found in words.check_comments(chart)] == [1, 2, 3]


def test_a_finding_names_its_line(words: ModuleType) -> None:
    (found,) = words.check(Path("page.md"), "# Title\n\nA plain sentence.\n\nSomebody acts.")
    assert found.line == 5


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        pytest.param("The operator deletes it. " * 9 + "The pod is deleted. " * 3, [], id="a quarter is passive"),
        pytest.param(
            "The operator deletes it. " * 9 + "The pod is deleted. " * 4,
            ["passive"],
            id="more than a quarter is passive",
        ),
        pytest.param("The pod is deleted. " * 9, [], id="a short page"),
        pytest.param("Words " * 26 + ".", ["26 words"], id="a sentence that is too long for a page"),
        pytest.param("The node has room.", ["'room' (metaphor)"], id="a metaphor"),
        pytest.param("The field `room` is empty.", [], id="the same word as code"),
        pytest.param("Words " * 15 + "are: " + "words " * 15 + ".", ["31 words"], id="a colon ends no sentence"),
        pytest.param("Words " * 15 + "\n2 of them " + "words " * 15, ["32 words"], id="a line that begins with 2"),
        pytest.param("Words " * 15 + "\n2. item " + "words " * 15, [], id="an item of a list"),
        pytest.param("| x | " + "words " * 26 + "|", ["26 words"], id="a long sentence in a table"),
        pytest.param("| x | " + "words " * 20 + ". " + "words " * 20 + "|", [], id="two sentences in a table"),
        pytest.param("```\n| x | " + "words " * 26 + "|\n```", [], id="a table in a block of code"),
        pytest.param("| pods | nobody |", ["'nobody' (personification)"], id="a word in a table"),
        pytest.param("| [pods](room.md) | `nobody` |", [], id="links and code in a table"),
    ],
)
def test_what_is_found_on_pages(words: ModuleType, text: str, rules: list[str]) -> None:
    assert [found.rule for found in words.check_page(Path("page.md"), text)] == rules


def test_packages_with_many_passive_docstrings_and_comments_are_found(words: ModuleType, tmp_path: Path) -> None:
    passive, active = "A pod is deleted by it", "The operator deletes a pod"
    for package, count in (("many", 5), ("few", 4)):
        (tmp_path / package).mkdir()
        comments = [f"x = 1  # {passive}\n"] * count + [f"x = 1  # {active}\n"] * (11 - count)
        (tmp_path / package / "module.py").write_text(f'"""{active}."""\n' + "".join(comments))
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "module.py").write_text(f'"""{passive}."""\n')
    (found,) = words.check_voice(sorted(tmp_path.glob("*/*.py")))
    assert (found.path.name, found.rule, found.text) == ("many", "passive", "5 of 12 sentences")
