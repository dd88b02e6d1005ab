"""Spread constraints at three levels: what is refused, with path and sentence, and what other schedulers say."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import binding, changed, faults, schedulers, warnings

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import Admission
from grove.api.meta import Json
from grove.backends import Backends
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend, KubeOptions

ADMISSION = Admission(topology_enabled=True, backends=Backends([GroveBackend()], "grove-scheduler"))
KNOWN = Known(
    topologies={"cluster": binding(), "broken": ConnectionError("connection refused")},
    queues={"default": {"status": {"state": "Open"}}},
)
T = "spec.template"
S, G, C = (f"{T}{at}.spreadConstraint" for at in ("", ".podCliqueScalingGroups[0]", ".cliques[0]"))
LEVELS = "not a level of the topology, which has: zone, rack, host"


def over(domain: str = "zone", name: str = "cluster", **more: object) -> Json:
    return {"topologyName": name, "domain": domain, **more} if name else {"domain": domain, **more}


def packed(required: str) -> Json:
    return {"topologyName": "cluster", "pack": {"required": required}}


def made(own: Json | None = None, in_group: Json | None = None, in_clique: Json | None = None, **packs: str) -> Json:
    """A set with one clique in one group, spread at up to three levels; `packs` by set, group and clique."""
    obj = pcs("demo", clique("a"), groups=[group("g", "a")])
    owners = (
        (T, own, "set"),
        (f"{T}.podCliqueScalingGroups.0", in_group, "group"),
        (f"{T}.cliques.0", in_clique, "clique"),
    )
    for path, spread, owner in owners:
        if spread is not None:
            obj = changed(obj, (f"{path}.spreadConstraint", spread))
        if owner in packs:
            obj = changed(obj, (f"{path}.topologyConstraint", packed(packs[owner])))
    return obj


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(made(over(maxSkew=2, whenUnsatisfiable="ScheduleAnyway"), set="rack"), [], id="pack and spread"),
        pytest.param(made(over("rack"), set="rack"), [], id="the same domain for both"),
        pytest.param(made(over("zone"), over("rack", ""), over("host", "")), [], id="three levels, the name inherited"),
        pytest.param(made(in_clique=over("host"), clique="rack"), [], id="pods over the hosts of one rack"),
        pytest.param(made(in_group=over("rack"), set="zone"), [], id="a group over the racks of the set's zone"),
        pytest.param(made(over("row")), [f'{S}.domain: Invalid value: "row": {LEVELS}'], id="unknown domain"),
        pytest.param(
            made(over(maxSkew=0)),
            [f"{S}.maxSkew: Invalid value: 0: {S}.maxSkew in body should be greater than or equal to 1"],
            id="maxSkew 0",
        ),
        pytest.param(
            made(over("")),
            [
                f'{S}.domain: Invalid value: "": {S}.domain in body should be at least 1 chars long',
                f"""{S}.domain: Invalid value: "": {S}.domain in body should match '^[a-z][a-z0-9-]*$'""",
            ],
            id="empty domain",
        ),
        pytest.param(made({"topologyName": "cluster"}), [f"{S}.domain: Required value"], id="no domain"),
        pytest.param(
            made(over(name="")),
            [f"{S}.topologyName: Required value: no constraint names a topology: name a ClusterTopologyBinding"],
            id="no topology",
        ),
        pytest.param(
            made(over(name="other"), set="rack"),
            [
                f'{S}.topologyName: Invalid value: "other": differs from "cluster": '
                "a PodCliqueSet uses one topology only"
            ],
            id="two topologies",
        ),
        pytest.param(
            made(over(name="gone")),
            [
                f'{S}.topologyName: Invalid value: "gone": no such ClusterTopologyBinding: '
                "create it first, or name another one"
            ],
            id="no such topology",
        ),
        pytest.param(
            made(over("rack"), set="zone"),
            [
                f'{S}.domain: Invalid value: "rack": narrower than "zone", which topologyConstraint requires: '
                "a replica is counted in one domain"
            ],
            id="narrower than the required pack domain",
        ),
        pytest.param(
            made(in_group=over("host"), group="rack"),
            [
                f'{G}.domain: Invalid value: "host": narrower than "rack", which topologyConstraint requires: '
                "a replica is counted in one domain"
            ],
            id="a group narrower than its pack domain",
        ),
        pytest.param(
            made(in_group=over("zone"), set="rack"),
            [
                f'{G}.domain: Invalid value: "zone": nothing can be spread over it: '
                'topologyConstraint of the set requires one "rack"'
            ],
            id="a group that the set packs together",
        ),
        pytest.param(
            made(over("zone"), in_clique=over("zone", "")),
            [
                f'{C}.domain: Invalid value: "zone": nothing can be spread over it: '
                'spreadConstraint of the set keeps a replica in one "zone"'
            ],
            id="pods over the domains that replicas are spread over",
        ),
        pytest.param(
            made(in_clique=over("zone"), clique="rack"),
            [
                f'{C}.domain: Invalid value: "zone": nothing can be spread over it: '
                'its topologyConstraint requires one "rack"'
            ],
            id="pods over zones and in one rack",
        ),
    ],
)
def test_what_is_refused(obj: Json, want: list[str]) -> None:
    assert faults(ADMISSION, obj, lookups=KNOWN) == want


def test_without_topology_aware_scheduling_it_is_refused() -> None:
    off = Admission(topology_enabled=False, backends=ADMISSION.backends)
    assert faults(off, made(over()), lookups=KNOWN) == [
        f'{S}: Invalid value: "zone": not allowed while topology-aware scheduling is disabled '
        "(topologyAwareScheduling.enabled)"
    ]


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "koord-scheduler", "volcano"])
def test_other_schedulers_refuse_it(scheduler: str) -> None:
    admission = Admission(topology_enabled=True, backends=schedulers(scheduler))
    obj = changed(made(over(), over("rack"), over("host")), ("metadata.labels", {"kai.scheduler/queue": "q"}))
    for path in (S, G, C):
        sentence = f"{path}: Forbidden: {scheduler} takes no spread constraint; grove-scheduler does"
        assert sentence in faults(admission, obj, lookups=KNOWN)


def test_kube_scheduler_takes_the_spread_of_pods_only() -> None:
    admission = Admission(topology_enabled=True, backends=Backends([KubeBackend(KubeOptions())], "default-scheduler"))
    assert faults(admission, made(in_clique=over()), lookups=KNOWN) == []
    assert faults(admission, made(over(), over("rack")), lookups=KNOWN) == [
        f"{S}: Forbidden: default-scheduler spreads pods and cannot spread replicas of a set; grove-scheduler can",
        f"{G}: Forbidden: default-scheduler spreads pods and cannot spread replicas of a scaling group; "
        "grove-scheduler can",
    ]


def test_a_spread_may_change_on_a_set_that_lives() -> None:
    assert faults(ADMISSION, made(over(maxSkew=2)), made(over()), lookups=KNOWN) == []
    assert faults(ADMISSION, made(), made(over()), lookups=KNOWN) == []
    assert faults(ADMISSION, made(over("row")), made(over()), lookups=KNOWN) == [
        f'{S}.domain: Invalid value: "row": {LEVELS}'
    ]


@pytest.mark.parametrize(
    ("levels", "want"),
    [
        pytest.param({}, [], id="the topology is as it was"),
        pytest.param(
            {"host": "kubernetes.io/hostname"},
            [f'{S}.domain: Invalid value: "zone": not a level of the topology, which has: host'],
            id="the level is gone",
        ),
        pytest.param(
            {"rack": "example.com/rack", "zone": "topology.kubernetes.io/zone"},
            [
                f'{S}.domain: Invalid value: "zone": narrower than "rack", which topologyConstraint requires: '
                "a replica is counted in one domain"
            ],
            id="the levels have another order",
        ),
    ],
)
def test_a_set_can_be_edited_after_its_topology_changed_and_the_user_is_warned(
    levels: dict[str, str], want: list[str]
) -> None:
    now = Known(topologies={"cluster": binding(**levels)})
    old = made(over(), set="rack")
    new = changed(old, ("spec.replicas", 3))
    assert faults(ADMISSION, new, old, lookups=now) == []
    assert [one for one in warnings(ADMISSION, new, old, lookups=now) if one.startswith(S)] == want
