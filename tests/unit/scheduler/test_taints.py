"""Which taints a toleration takes, as Kubernetes defines it."""

from __future__ import annotations

from typing import Any

import pytest

from grove.scheduler.filters.node_filters import Taint, Toleration, tolerates

SLA = Taint(key="sla", value="95", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        pytest.param({"key": "sla", "value": "95"}, True, id="its value"),
        pytest.param({"key": "sla", "value": "9"}, False, id="another value"),
        pytest.param({"value": "95"}, False, id="a value without a key"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "sla", "operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": "gpu", "operator": "Exists"}, False, id="another key"),
        pytest.param({"key": "sla", "operator": "Lt", "value": "99"}, True, id="95 is below 99"),
        pytest.param({"key": "sla", "operator": "Lt", "value": "95"}, False, id="95 is not below 95"),
        pytest.param({"key": "sla", "operator": "Gt", "value": "-3"}, True, id="95 is above -3"),
        pytest.param({"key": "sla", "operator": "Gt", "value": "95"}, False, id="95 is not above 95"),
        pytest.param({"key": "sla", "operator": "Gt", "value": "ten"}, False, id="a bound that is no number"),
        pytest.param({"key": "sla", "operator": "Lt", "value": "9" * 5000}, False, id="a bound of 5000 digits"),
        pytest.param({"key": "sla", "operator": "Near", "value": "95"}, False, id="an operator nobody knows"),
    ],
)
def test_a_toleration_takes_a_taint(toleration: dict[str, Any], want: bool) -> None:
    assert tolerates(Toleration(**toleration), SLA) == want
