"""The part of CEL that validation rules in CRDs use, compiled to closures.

Covers literals, member access, `has()`, the list macros, comparisons, boolean and integer arithmetic, `in`, `?:`,
`size`, string tests and optional values (`oldSelf.hasValue()`). A rule with anything else fails when it is compiled, so
an unknown construct can never pass as a rule that holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

Scope: TypeAlias = Mapping[str, Any]
Expr: TypeAlias = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<string>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>&&|\|\||==|!=|<=|>=|\.\?|[-+*/%!<>?:.,()\[\]]))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "in": lambda a, b: a in b,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: int(a / b),
    "%": lambda a, b: a - b * int(a / b),
}
_METHODS: dict[str, Callable[..., Any]] = {
    "size": lambda v: len(v),
    "startsWith": lambda v, s: v.startswith(s),
    "endsWith": lambda v, s: v.endswith(s),
    "contains": lambda v, s: s in v,
    "matches": lambda v, s: re.search(s, v) is not None,
    "hasValue": lambda v: v.present,
    "value": lambda v: v.value,
    "orValue": lambda v, other: v.value if v.present else other,
}
_MACROS = ("all", "exists", "exists_one", "filter", "map")


class UnknownRule(Exception):
    """The rule uses something this evaluator does not know."""


class CelError(Exception):
    """Evaluation failed (a missing key, a wrong type); the API server then refuses the object."""


class Optional(NamedTuple):
    """CEL's optional value: `oldSelf` of a rule with `optionalOldSelf`."""

    value: Any
    present: bool


ABSENT = Optional(None, False)


def compile_rule(text: str) -> Expr:
    """The rule as a function of its variables (`self`, `oldSelf`); raises UnknownRule for what is not covered."""
    parser = _Parser(text)
    expr = parser.ternary()
    parser.expect_end()

    def evaluate(scope: Scope) -> Any:
        try:
            return expr(scope)
        except (KeyError, TypeError, AttributeError, IndexError, ZeroDivisionError) as error:
            raise CelError(f"{text}: {error}") from error

    return evaluate


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if not match or match.lastgroup is None:
                raise UnknownRule(f"cannot read {text[at:]!r} in {text!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise UnknownRule(f"{self._text!r} ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *ops: str) -> str:
        if self._peek() in ops:
            return self._next()[1]
        return ""

    def _expect(self, op: str) -> None:
        if not self._accept(op):
            raise UnknownRule(f"expected {op!r} before {self._peek()!r} in {self._text!r}")

    def expect_end(self) -> None:
        if self._at != len(self._tokens):
            raise UnknownRule(f"cannot read {self._peek()!r} in {self._text!r}")

    def ternary(self) -> Expr:
        test = self._either()
        if not self._accept("?"):
            return test
        yes = self.ternary()
        self._expect(":")
        no = self.ternary()
        return lambda s: yes(s) if test(s) else no(s)

    def _either(self) -> Expr:
        left = self._both()
        while self._accept("||"):
            left = _or(left, self._both())
        return left

    def _both(self) -> Expr:
        left = self._comparison()
        while self._accept("&&"):
            left = _and(left, self._comparison())
        return left

    def _comparison(self) -> Expr:
        left = self._sum()
        while op := self._accept(*_COMPARE):
            left = _binary(_COMPARE[op], left, self._sum())
        return left

    def _sum(self) -> Expr:
        left = self._product()
        while op := self._accept("+", "-"):
            left = _binary(_ARITHMETIC[op], left, self._product())
        return left

    def _product(self) -> Expr:
        left = self._unary()
        while op := self._accept("*", "/", "%"):
            left = _binary(_ARITHMETIC[op], left, self._unary())
        return left

    def _unary(self) -> Expr:
        if self._accept("!"):
            inner = self._unary()
            return lambda s: not inner(s)
        if self._accept("-"):
            inner = self._unary()
            return lambda s: -inner(s)
        return self._member()

    def _member(self) -> Expr:
        value = self._primary()
        while op := self._accept(".", "[", ".?"):
            if op == "[":
                index = self.ternary()
                self._expect("]")
                value = _binary(lambda v, i: v[i], value, index)
                continue
            kind, name = self._next()
            if kind != "name":
                raise UnknownRule(f"expected a name after {op!r} in {self._text!r}")
            if op == ".?":
                value = _optional_member(value, name)
            elif self._accept("("):
                value = self._call(value, name)
            else:
                value = _member(value, name)
        return value

    def _call(self, target: Expr, name: str) -> Expr:
        if name in _MACROS:
            _, variable = self._next()
            self._expect(",")
            body = self.ternary()
            self._expect(")")
            return _macro(name, target, variable, body)
        if name not in _METHODS:
            raise UnknownRule(f"unknown function {name}() in {self._text!r}")
        method, arguments = _METHODS[name], self._arguments()
        return lambda s: method(target(s), *(a(s) for a in arguments))

    def _arguments(self) -> list[Expr]:
        elements: list[Expr] = []
        while not self._accept(")"):
            elements.append(self.ternary())
            if self._peek() != ")":
                self._expect(",")
        return elements

    def _primary(self) -> Expr:
        kind, text = self._next()
        if kind == "number":
            number = float(text) if "." in text else int(text)
            return lambda _s: number
        if kind == "string":
            string = re.sub(r"\\(.)", r"\1", text[1:-1])
            return lambda _s: string
        if text == "(":
            inner = self.ternary()
            self._expect(")")
            return inner
        if text == "[":
            items: list[Expr] = []
            while not self._accept("]"):
                items.append(self.ternary())
                if self._peek() != "]":
                    self._expect(",")
            return lambda s: [item(s) for item in items]
        if kind != "name":
            raise UnknownRule(f"cannot read {text!r} in {self._text!r}")
        if text in ("true", "false", "null"):
            literal = {"true": True, "false": False, "null": None}[text]
            return lambda _s: literal
        if self._accept("("):
            return self._function(text)
        return lambda s: s[text]

    def _function(self, name: str) -> Expr:
        if name == "size":
            (argument,) = self._arguments()
            return lambda s: len(argument(s))
        if name != "has":
            raise UnknownRule(f"unknown function {name}() in {self._text!r}")
        start = self._at
        self._member()
        self._expect(")")
        path = [text for _, text in self._tokens[start : self._at - 1]]
        if len(path) < 3 or path[1::2] != ["."] * (len(path) // 2):
            raise UnknownRule(f"has() takes a field of a path in {self._text!r}")
        names = path[::2]

        def has(scope: Scope) -> bool:
            value = scope[names[0]]
            for name in names[1:-1]:
                value = value[name]
            return names[-1] in value

        return has


def _or(left: Expr, right: Expr) -> Expr:
    # A true side decides even when the other side fails, in whichever order they stand.
    def either(scope: Scope) -> bool:
        try:
            if left(scope):
                return True
        except (KeyError, TypeError, AttributeError):
            if right(scope):
                return True
            raise
        return bool(right(scope))

    return either


def _and(left: Expr, right: Expr) -> Expr:
    def both(scope: Scope) -> bool:
        try:
            if not left(scope):
                return False
        except (KeyError, TypeError, AttributeError):
            if not right(scope):
                return False
            raise
        return bool(right(scope))

    return both


def _binary(op: Callable[[Any, Any], Any], left: Expr, right: Expr) -> Expr:
    return lambda s: op(left(s), right(s))


def _member(target: Expr, name: str) -> Expr:
    return lambda s: target(s)[name]


def _optional_member(target: Expr, name: str) -> Expr:
    def member(scope: Scope) -> Optional:
        value = target(scope)
        if isinstance(value, Optional):
            value = value.value if value.present else {}
        return Optional(value[name], True) if name in value else ABSENT

    return member


def _macro(name: str, target: Expr, variable: str, body: Expr) -> Expr:
    def each(scope: Scope) -> list[tuple[Any, Any]]:
        return [(item, body({**scope, variable: item})) for item in target(scope)]

    match name:
        case "all":
            return lambda s: all(result for _, result in each(s))
        case "exists":
            return lambda s: any(result for _, result in each(s))
        case "exists_one":
            return lambda s: sum(bool(result) for _, result in each(s)) == 1
        case "filter":
            return lambda s: [item for item, result in each(s) if result]
        case _:
            return lambda s: [result for _, result in each(s)]
