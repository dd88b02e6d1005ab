"""A set that asks for what the cluster does not serve says so, and stops saying so when it does."""

from __future__ import annotations

from datetime import UTC, datetime

from grove.api.core import COMPUTE_DOMAIN, HorizontalPodAutoscaler
from grove.api.meta import find_condition
from grove.operator.podcliqueset.status import FEATURES_UNAVAILABLE, with_features_condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_nothing_is_said_while_nothing_is_missing() -> None:
    assert with_features_condition((), (), 1, NOW) == ()


def test_what_is_missing_is_named() -> None:
    found = with_features_condition((), (COMPUTE_DOMAIN, HorizontalPodAutoscaler.RESOURCE), 3, NOW)
    said = find_condition(found, FEATURES_UNAVAILABLE)
    assert said is not None
    assert (said.status, said.reason, said.observed_generation) == ("True", "APINotServed", 3)
    assert said.message == (
        "autoscaling: the cluster does not serve horizontalpodautoscalers of autoscaling/v2; "
        "MNNVL compute domains: the cluster does not serve computedomains of resource.nvidia.com/v1beta1"
    )


def test_it_goes_when_the_kind_comes() -> None:
    found = with_features_condition((), (COMPUTE_DOMAIN,), 1, NOW)
    assert with_features_condition(found, (), 1, NOW) == ()
