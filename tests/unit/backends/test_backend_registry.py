"""The registry: which scheduler a set gets, and what the two built-in backends promise."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, pcs
from tests.support.objects import gang
from tests.support.observed import binding, set_of
from tests.support.reviews import binding as review_binding
from tests.support.reviews import faults, review_of, warnings

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import VALIDATE_SET, Admission
from grove.api.labels import SCHEDULER_NAME
from grove.api.meta import Json
from grove.backends import KNOWN, Backends, build_backends
from grove.backends.base import GangObjects, PodSite, TopologyBackend
from grove.backends.grove import GroveBackend
from grove.backends.koord import KoordBackend
from grove.backends.kube import KubeBackend, KubeOptions
from grove.backends.kube_api import Capability
from grove.backends.volcano import VolcanoBackend
from grove.config import ConfigError, Scheduler, load_configuration


def registry(default: str = "grove-scheduler") -> Backends:
    return Backends([KubeBackend(), GroveBackend()], default)


@pytest.mark.parametrize(
    ("named", "recorded", "default", "wanted"),
    [
        pytest.param("", (), "grove-scheduler", "grove-scheduler", id="nothing said: the default"),
        pytest.param("default-scheduler", (), "grove-scheduler", "default-scheduler", id="the set says so"),
        pytest.param(
            "", ("default-scheduler",), "grove-scheduler", "default-scheduler", id="a new default moves no set"
        ),
        pytest.param(
            "grove-scheduler",
            ("default-scheduler",),
            "default-scheduler",
            "grove-scheduler",
            id="what the set says beats what was recorded",
        ),
        pytest.param("", ("gone-scheduler",), "grove-scheduler", "grove-scheduler", id="a recorded one that is gone"),
        pytest.param("nosuch", (), "grove-scheduler", None, id="one that is not enabled"),
    ],
)
def test_the_scheduler_of_a_set(named: str, recorded: tuple[str, ...], default: str, wanted: str | None) -> None:
    observed = set_of(pcs("d", clique("a"), clique("b"), scheduler=named))
    gangs = [gang("d-0", labels={SCHEDULER_NAME: name}) for name in recorded]
    found = registry(default).for_set(observed, gangs)
    assert (found.name if found else None) == wanted


def test_the_first_clique_that_names_one_decides() -> None:
    observed = set_of(pcs("d", clique("a"), clique("b", schedulerName="default-scheduler")))
    found = registry().for_set(observed)
    assert found is not None
    assert found.name == "default-scheduler"


def test_a_gang_keeps_its_label_and_falls_back_to_the_default() -> None:
    assert registry().for_gang(gang("d-0", labels={SCHEDULER_NAME: "default-scheduler"})).name == "default-scheduler"
    assert registry().for_gang(gang("d-0", labels={SCHEDULER_NAME: "nosuch"})).name == "grove-scheduler"


def test_lookup_by_name() -> None:
    found = registry()
    assert found.find("") is found.default
    assert found.find("nosuch") is None
    assert [one.name for one in found.all] == ["default-scheduler", "grove-scheduler"]
    assert [one.name for one in found.topology_aware] == ["grove-scheduler"]


def test_what_the_two_promise() -> None:
    ours, kube = GroveBackend(), KubeBackend()
    assert (ours.needs_gate, ours.reports_gang_status) == (False, True)
    assert (kube.needs_gate, kube.reports_gang_status) == (True, False)
    assert isinstance(ours, TopologyBackend)
    assert not isinstance(kube, TopologyBackend)
    for backend in (ours, kube):
        observed = set_of(pcs("d", clique("a")))
        pod = {"metadata": {}, "spec": {"schedulerName": "users"}}
        backend.prepare_pod(pod, PodSite(observed, "d-0", "d-0-a", 0, 1))
        assert pod["spec"]["schedulerName"] == backend.name
        assert backend.validate(observed) == ()
        assert backend.gang_objects(gang("d-0", labels={SCHEDULER_NAME: backend.name}), observed, []) == GangObjects()
        assert backend.gang_resources == ()


@pytest.mark.parametrize(
    ("startup", "said", "want"),
    [
        pytest.param("CliqueStartupTypeInOrder", "", "b=a,c=b", id="one after the other"),
        pytest.param("CliqueStartupTypeExplicit", "", "c=a", id="as they name each other"),
        pytest.param("CliqueStartupTypeAnyOrder", "", "", id="without an order nobody is linked"),
        pytest.param("CliqueStartupTypeInOrder", "a=c:3", "", id="what the set says itself is mirrored, not added to"),
    ],
)
def test_start_order_gives_our_scheduler_the_pairs_that_talk(startup: str, said: str, want: str) -> None:
    cliques = (clique("a"), clique("b"), clique("c", starts_after=["a"] if startup.endswith("Explicit") else []))
    body = pcs("x", *cliques, startup=startup)
    if said:
        body["metadata"]["annotations"] = {"grove.io/network-affinity": said}
    found = GroveBackend().gang_annotations(set_of(body), None, ())
    assert found == ({"grove.io/network-affinity": want} if want else {})


def test_parts_of_gpus_in_kais_words_are_refused_with_ours() -> None:
    one = clique("a")
    one["annotations"] = {"gpu-fraction": "0.5"}
    (found,) = GroveBackend().validate(set_of(pcs("x", clique("b"), one)))
    assert found.path == "spec.template.cliques[1].annotations[gpu-fraction]"
    assert "koordinator.sh/gpu-core" in found.message


def test_while_the_gate_of_our_scheduler_is_off_new_sets_are_refused_and_those_that_run_may_be_edited() -> None:
    profile = (
        "profiles: [{name: grove-scheduler, config: {groveIntegration: false}}], defaultProfileName: grove-scheduler"
    )
    backend = build_backends(load_configuration(f"scheduler: {{{profile}}}").scheduler).find("grove-scheduler")
    assert backend is not None
    admission = Admission(backends=Backends([backend], "grove-scheduler"))
    body = pcs("x", clique("a"))
    (fault,) = faults(admission, body)
    assert "the feature gate GroveIntegration of grove-scheduler is off" in fault
    assert faults(admission, {**body, "spec": {**body["spec"], "replicas": 2}}, body) == []


def test_our_scheduler_needs_no_topology_object() -> None:
    ours = GroveBackend()
    assert ours.wanted_topology(binding()) is None
    assert ours.topology_drift(binding(), "topo", None).in_sync
    assert not ours.topology_drift(binding(), "other", None).in_sync


def test_a_registry_from_a_file() -> None:
    found = build_backends(load_configuration("", KNOWN).scheduler)
    assert found.default.name == "grove-scheduler"
    assert [one.name for one in found.all] == ["default-scheduler", "grove-scheduler"]


@pytest.mark.parametrize(
    ("profiles", "faults"),
    [
        pytest.param("[{name: default-scheduler, config: {gangScheduling: false}}]", [], id="known option, off"),
        pytest.param("[{name: default-scheduler, config: {gangScheduling: true}}]", [], id="known option, on"),
        pytest.param("[{name: default-scheduler, config: {gang: Off}}]", [], id="Off, a truth value to YAML"),
        pytest.param(
            "[{name: default-scheduler, config: {gangScheduling: maybe, gang: Sometimes, gangMapping: 3, x: 1}}]",
            [
                "scheduler.profiles[0].config.gangScheduling: must be true or false, got 'maybe'",
                "scheduler.profiles[0].config.gang: must be one of Auto, Required, Off, got 'Sometimes'",
                "scheduler.profiles[0].config.gangMapping: must be one of Auto, PerClique, Merged, got 3",
                "scheduler.profiles[0].config.x: unknown field",
            ],
            id="every fault at once",
        ),
        pytest.param(
            "[{name: grove-scheduler, config: {speed: 9}}]",
            ["scheduler.profiles[0].config.speed: unknown field"],
            id="unknown option",
        ),
    ],
)
def test_options(profiles: str, faults: list[str]) -> None:
    scheduler = load_configuration(f"scheduler: {{profiles: {profiles}}}").scheduler
    if not faults:
        assert isinstance(build_backends(scheduler), Backends)
        return
    with pytest.raises(ConfigError) as caught:
        build_backends(scheduler)
    assert [str(fault) for fault in caught.value.faults] == faults


def test_a_profile_without_backend_is_refused() -> None:
    profiles = load_configuration("scheduler: {profiles: [{name: nosuch-scheduler}]}").scheduler
    assert isinstance(profiles, Scheduler)
    with pytest.raises(ConfigError, match=r"scheduler.profiles\[0\].name: no such scheduler backend"):
        build_backends(profiles)


@pytest.mark.parametrize(
    ("annotation", "recorded", "wanted"),
    [
        pytest.param("koord-scheduler", (), "koord-scheduler", id="an annotation chooses for a new set"),
        pytest.param("koordinator-scheduler", (), "koord-scheduler", id="by its other name too"),
        pytest.param("koord-scheduler", ("grove-scheduler",), "grove-scheduler", id="and moves no living gang"),
        pytest.param("nosuch", (), None, id="one that is not enabled"),
    ],
)
def test_a_scheduler_by_annotation(annotation: str, recorded: tuple[str, ...], wanted: str | None) -> None:
    found = Backends([GroveBackend(), KoordBackend(installed=True)], "grove-scheduler")
    observed = set_of(pcs("d", clique("a"), metadata={"annotations": {"schedulerName": annotation}}))
    chosen = found.for_set(observed, [gang("d-0", labels={SCHEDULER_NAME: name}) for name in recorded])
    assert (chosen.name if chosen else None) == wanted


def test_admission_finds_the_other_name_and_leaves_topology_to_the_backend() -> None:
    enabled = Backends([KoordBackend(installed=True), VolcanoBackend(capable=True)], "koord-scheduler")
    assert enabled.name_of("koordinator-scheduler") == enabled.name_of("") == "koord-scheduler"
    refused = Admission(backends=enabled, topology_enabled=True)
    rack = {"topologyName": "cluster", "pack": {"required": "rack"}}
    bound = Known(topologies={"cluster": review_binding()}, queues={"default": {"status": {"state": "Open"}}})
    assert faults(refused, pcs("d", clique("a"), scheduler="volcano", topologyConstraint=rack), lookups=bound) == [
        "spec.template.topologyConstraint: Forbidden: no tiers are configured for volcano, so it cannot use any "
        "topology"
    ]
    wanted = pcs("d", clique("a"), metadata={"annotations": {"scheduling.koordinator.sh/gang-timeout": "soon"}})
    assert faults(refused, wanted) == [
        "metadata.annotations[scheduling.koordinator.sh/gang-timeout]: Forbidden: must be a duration like 90s or 10m, "
        "or whole seconds, not 'soon'"
    ]


def test_admission_refuses_a_change_that_the_scheduler_cannot_follow_and_no_edit_of_what_runs() -> None:
    gone = KubeBackend(KubeOptions(gang="Required"), Capability())
    there = KubeBackend(KubeOptions(gang="Required"), Capability("v1alpha2", preemption=True))
    low, high = (pcs("d", clique("a"), clique("b"), priorityClassName=name) for name in ("low", "high"))
    more = {**low, "spec": {**low["spec"], "replicas": 2}}

    def refused(backend: KubeBackend, new: Json, old: Json | None) -> list[str]:
        found = faults(Admission(backends=Backends([backend], "default-scheduler")), new, old)
        return [one.partition(":")[0] for one in found]

    assert refused(there, high, low) == ["spec.template.priorityClassName"]
    assert refused(there, more, low) == []
    assert refused(gone, low, None) == ["spec"]
    assert refused(gone, more, low) == []


def test_a_refused_move_of_a_living_set_says_how_to_do_it() -> None:
    enabled = Backends([KubeBackend(), KoordBackend(installed=True)], "default-scheduler")
    here, there = (
        pcs("d", clique("a")),
        pcs("d", clique("a"), metadata={"annotations": {"schedulerName": "koord-scheduler"}}),
    )
    told = warnings(Admission(backends=enabled), there, here)
    assert [one for one in told if "schedulerName" in one] == [
        "metadata.annotations[schedulerName]: what runs stays with its scheduler; to move the set, scale it to 0 "
        "replicas and back"
    ]


def test_the_queue_of_a_set_that_names_its_scheduler_by_annotation_is_looked_up_too() -> None:
    enabled = Backends([KubeBackend(), VolcanoBackend(capable=True)], "default-scheduler")
    said = {"schedulerName": "volcano", "scheduling.grove.io/volcano-queue": "research"}
    wanted = pcs("d", clique("a"), metadata={"annotations": said})
    assert Admission(backends=enabled).needs(VALIDATE_SET, review_of(wanted)).queues == {"research"}
