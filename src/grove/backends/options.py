"""Options of a scheduler profile, read one by one; what is wrong is gathered with its path and raised at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from grove.api.meta import Json
from grove.config import ConfigError, ConfigFault

T = TypeVar("T")


class Options:
    """`take` what a backend has, then `finish`: what was not taken is unknown."""

    def __init__(self, given: Json, path: str) -> None:
        self._left, self._path = dict(given), path
        self._faults: list[ConfigFault] = []

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self._left.pop(name, default)
        if value is False and "Off" in choices:
            value = "Off"  # as YAML reads the word without quotes
        if value not in choices:
            self._wrong(name, f"must be one of {', '.join(choices)}, got {value!r}")
            return default
        return str(value)

    def flag(self, name: str, default: T) -> bool | T:
        value = self._left.pop(name, default)
        if value is not default and not isinstance(value, bool):
            self._wrong(name, f"must be true or false, got {value!r}")
            return default
        return bool(value) if isinstance(value, bool) else default

    def text(self, name: str, default: str = "") -> str:
        value = self._left.pop(name, default)
        if not isinstance(value, str):
            self._wrong(name, f"must be a string, got {value!r}")
            return default
        return value

    def strings(self, name: str) -> dict[str, str]:
        """A map of strings to strings."""
        value: Any = self._left.pop(name, {})
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in (*value, *value.values())):
            self._wrong(name, f"must map strings to strings, got {value!r}")
            return {}
        return value

    def finish(self) -> None:
        """Raises `ConfigError` if anything was wrong."""
        faults = [*self._faults, *(ConfigFault(f"{self._path}.{key}", "unknown field") for key in sorted(self._left))]
        if faults:
            raise ConfigError(faults)

    def _wrong(self, name: str, message: str) -> None:
        self._faults.append(ConfigFault(f"{self._path}.{name}", message))
