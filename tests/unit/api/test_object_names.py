"""Names, by the two worked examples of the wire contract: the set `demo` with a group, once of `pf`, once of `grp`."""

from __future__ import annotations

import pytest

from grove.api import names


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param(names.replica("demo", 0), "demo-0", id="a replica of a set"),
        pytest.param(names.base_gang("demo", 1), "demo-1", id="the base gang is called like its replica"),
        pytest.param(names.headless_service("demo", 1), "demo-1", id="and so is the service"),
        pytest.param(names.subdomain("demo", 1), "demo-1", id="and the subdomain of its pods"),
        pytest.param(names.clique("demo", 0, "fe"), "demo-0-fe", id="a standalone clique"),
        pytest.param(names.scaling_group("demo", 0, "pf"), "demo-0-pf", id="a scaling group"),
        pytest.param(names.group_replica("demo-0-pf", 2), "demo-0-pf-2", id="a replica of a group"),
        pytest.param(names.member_clique("demo-0-pf", 0, "lead"), "demo-0-pf-0-lead", id="a clique in a group"),
        pytest.param(names.pod_prefix("demo-0-pf-2-wk"), "demo-0-pf-2-wk-", id="a pod's name before chance"),
        pytest.param(names.pod_hostname("demo-0-pf-2-wk", 1), "demo-0-pf-2-wk-1", id="a pod's hostname"),
        pytest.param(names.service_dns("demo", 0, "ns"), "demo-0.ns.svc.cluster.local", id="the service's DNS name"),
        pytest.param(names.autoscaler("demo-0-fe"), "demo-0-fe", id="an autoscaler is called like its target"),
        pytest.param(names.service_account("demo"), "demo", id="the service account"),
        pytest.param(names.role("demo"), "grove.io:pcs:demo", id="the role and its binding"),
        pytest.param(names.token_secret("demo"), "demo-ic-sat", id="the token secret"),
        pytest.param(names.legacy_token_secret("demo"), "demo-initc-sa-token-secret", id="the token secret of old"),
        pytest.param(names.shared_claim("demo", "nic"), "demo-all-nic", id="a claim that all share"),
        pytest.param(names.replica_claim("demo-0-pf", 1, "nic"), "demo-0-pf-1-nic", id="a claim of one replica"),
        pytest.param(names.compute_domain("demo", 1, "ring"), "demo-1-ring", id="a compute domain"),
    ],
)
def test_name(name: str, want: str) -> None:
    assert name == want


@pytest.mark.parametrize(
    ("group_index", "min_available", "want"),
    [
        pytest.param(0, 1, "demo-0", id="a replica below the minimum is in the base gang"),
        pytest.param(1, 1, "demo-0-grp-0", id="the first one above has scaled gang 0"),
        pytest.param(2, 1, "demo-0-grp-1", id="the next one has scaled gang 1"),
        pytest.param(3, 2, "demo-0-grp-1", id="numbering starts after the minimum"),
    ],
)
def test_gang_of_a_group_replica(group_index: int, min_available: int, want: str) -> None:
    assert names.gang_of_member("demo", 0, "demo-0-grp", group_index, min_available) == want


def test_there_is_no_scaled_gang_below_the_minimum() -> None:
    with pytest.raises(ValueError, match="base gang"):
        names.scaled_gang("demo-0-grp", 1, 2)


@pytest.mark.parametrize(
    ("hostname", "want"),
    [
        pytest.param("demo-0-fe-12", 12, id="the number after the last dash"),
        pytest.param("demo-0-fe", None, id="a name without a number"),
        pytest.param("7", None, id="a number without a dash"),
        pytest.param("demo-", None, id="a dash without a number"),
        pytest.param("demo-٣", None, id="digits of another script are not an index"),
        pytest.param("", None, id="no hostname"),
    ],
)
def test_find_pod_index(hostname: str, want: int | None) -> None:
    assert names.find_pod_index(hostname) == want
