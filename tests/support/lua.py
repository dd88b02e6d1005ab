"""Lua of other tools (Argo CD, Karmada) on our objects: Lua 5.1, which is what their interpreter speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lupa import lua51

Json = dict[str, Any]


class Script:
    """A script with its own globals; Argo CD and Karmada offer `os.date` and little more, so files are out of reach."""

    def __init__(self, **modules: Json) -> None:
        """`modules` are what the script may `require`: functions by name."""
        self._lua = lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
        self._lua.execute("io, dofile, loadfile = nil, nil, nil")
        self._lua.execute("os = {date = os.date, time = os.time}; package.loaded.os = os")
        for name, functions in modules.items():
            wrapped = {key: self._wrapped(function) for key, function in functions.items()}
            self._lua.globals().package.loaded[name] = self._lua.table_from(wrapped)

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: self._table(function(*(self._plain(one) for one in arguments)))

    def run(self, code: str, **variables: Any) -> Any:
        """What the script returns, with these global variables."""
        given = self._lua.globals()
        for name, value in variables.items():
            given[name] = self._table(value)
        return self._plain(self._lua.execute(code))

    def call(self, code: str, function: str, *arguments: Any) -> Any:
        """What one function of the script returns."""
        self._lua.execute(code)
        found = self._lua.globals()[function](*(self._table(one) for one in arguments))
        return [self._plain(one) for one in found] if isinstance(found, tuple) else self._plain(found)

    def _table(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._lua.table_from({key: self._table(one) for key, one in value.items() if one is not None})
        if isinstance(value, list | tuple):
            return self._lua.table_from([self._table(one) for one in value])
        return value

    def _plain(self, value: Any) -> Any:
        if lua51.lua_type(value) != "table":
            return value
        found = dict(value.items())
        if found and set(found) == set(range(1, len(found) + 1)):
            return [self._plain(found[index]) for index in range(1, len(found) + 1)]
        return {key: self._plain(one) for key, one in found.items()}
