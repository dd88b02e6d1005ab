"""Counted nouns in sentences for people: `1 pod`, `2 pods`."""

from __future__ import annotations


def many(count: int, singular: str, several: str = "") -> str:
    """The count and what is counted; `several` where an `s` is not enough: `many(n, "pod is", "pods are")`."""
    return f"{count} {singular if count == 1 else several or singular + 's'}"
