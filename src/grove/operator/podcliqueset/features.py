"""Kinds that a set asks for and the cluster does not serve: the feature is off, and the set says so.

A False is not published: a cluster that has what its sets ask for is the normal case, and a condition on every set that
says so would be one more thing to read past.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from grove.api.conditions import TRUE, with_condition, without_condition
from grove.api.meta import Condition, Resource

FEATURES_UNAVAILABLE = "FeaturesUnavailable"
API_NOT_SERVED = "APINotServed"

FEATURES = {
    "HorizontalPodAutoscaler": "autoscaling",
    "ResourceClaim": "shared resource claims",
    "ComputeDomain": "MNNVL compute domains",
}


def with_features_condition(
    conditions: tuple[Condition, ...], missing: Sequence[Resource], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with `FeaturesUnavailable` among them while something is missing, and without it otherwise."""
    if not missing:
        return without_condition(conditions, FEATURES_UNAVAILABLE)
    said = "; ".join(
        f"{FEATURES.get(one.kind, one.kind)}: the cluster does not serve {one.plural} of {one.api_version}"
        for one in sorted(set(missing))
    )
    return with_condition(conditions, FEATURES_UNAVAILABLE, TRUE, API_NOT_SERVED, said, now, generation)
