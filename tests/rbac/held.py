"""Rights that no request shows, each with its reason. What is not here and not used fails `make audit-rbac`."""

from __future__ import annotations

from collections.abc import Mapping

HELD: Mapping[str, str] = {}
