"""Taints and tolerations, by Kubernetes' rules: which taints stand against a pod, hard and soft.

The masks in `fit` ask this once for each distinct set of taints and spread the answers over the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from grove.api.core import Taint, Toleration

HARD_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        # An empty key is valid with Exists only; the API server refuses it with Equal, and so do we.
        return bool(toleration.key) and toleration.value == taint.value
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        bound, value = _as_int(toleration.value), _as_int(taint.value)
        if bound is None or value is None:
            return False
        return value < bound if toleration.operator == "Lt" else value > bound
    return False


def is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(tolerates(t, taint) for t in tolerations)


def hard_taints_tolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    """Whether a pod may go where these taints are; PreferNoSchedule only counts in the score."""
    return all(is_tolerated(taint, tolerations) for taint in taints if taint.effect in HARD_EFFECTS)


def soft_taints(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> int:
    """How many PreferNoSchedule taints stand against a pod."""
    return sum(taint.effect == "PreferNoSchedule" and not is_tolerated(taint, tolerations) for taint in taints)


def _as_int(text: str) -> int | None:
    """As Go's ParseInt in base ten reads it: an optional sign and digits, nothing else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    return int(text)
