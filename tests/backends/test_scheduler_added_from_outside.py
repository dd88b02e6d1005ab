"""A new scheduler is added as docs/backends.md says: one module and one registration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest
from tests.support.backend_schemas import definition
from tests.support.gang_schedulers import GangScheduler, cluster, eventually, operator
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of
from tests.support.reviews import faults

from grove import backends
from grove.admission.rules.review import Admission
from grove.api import conditions as words
from grove.api.core import CustomResourceDefinition, Pod
from grove.api.meta import Json, Resource, is_true
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.backends import Backends
from grove.backends.base import NOT_INSTALLED, Answers, Backend, GangObjects, PodSite, Question, Refusal
from grove.backends.kube_objects import object_meta
from grove.config import Section, read_section

pytestmark = pytest.mark.simulated

# The module that a person would add

NAME = "crew-scheduler"
CREW = Resource("crews.example.com", "v1", "Crew", "crews")


class CrewBackend(Backend):
    """Writes a gang as a Crew with a number of hands, without topology."""

    name = NAME

    def __init__(self, ship: str) -> None:
        self.ship, self.installed = ship, False

    @property
    def gang_resources(self) -> Sequence[Resource]:
        return (CREW,) if self.installed else ()

    @property
    def questions(self) -> Sequence[Question]:
        return (Question("crews", "served", CREW),)

    def learn(self, answers: Answers) -> None:
        self.installed, self.discovered = bool(answers.get("crews")), True

    def validate(self, pcs: PodCliqueSet) -> Sequence[Refusal]:
        if pcs.spec.template.topology_constraint is None:
            return ()
        return (Refusal("spec.template.topologyConstraint", "crews sail anywhere"),)

    def prepare_pod(self, pod: Json, site: PodSite) -> None:
        super().prepare_pod(pod, site)
        pod["metadata"].setdefault("labels", {})["crew"] = site.gang_name

    def gang_objects(self, gang: PodGang, pcs: PodCliqueSet, pods: Sequence[Pod]) -> GangObjects:
        if not self.installed:
            return GangObjects(ready=False, reason=NOT_INSTALLED, message="Crew is not served here")
        hands = sum(group.min_replicas for group in gang.spec.podgroups)
        meta = object_meta(gang, gang.metadata.name)
        spec = {"ship": self.ship, "hands": hands}
        return GangObjects(({"apiVersion": CREW.api_version, "kind": CREW.kind, "metadata": meta, "spec": spec},))

    def may_ungate(self, pod: Pod, gang: PodGang) -> bool:
        return is_true(gang.status.conditions, words.SCHEDULER_OBJECTS_READY)


class CrewOptions(Section):
    ship: str = "Argo"


def build(options: Json, path: str) -> CrewBackend:
    return CrewBackend(read_section(CrewOptions, options, path).ship)


# Its scheduler and its kind

KIND = definition(
    {
        "group": CREW.group,
        "version": CREW.version,
        "kind": CREW.kind,
        "plural": CREW.plural,
        "spec": {"ship": "text", "hands": "int>=1"},
    }
)


class Crews(GangScheduler):
    name, kind = NAME, CREW

    def gangs(self, groups: dict[str, Json], pods: list[Pod]) -> Iterable[list[Pod]]:
        for name, crew in sorted(groups.items()):
            mine = [pod for pod in pods if pod.metadata.labels.get("crew") == name and not pod.is_gated]
            if len(mine) >= crew["spec"]["hands"]:
                yield mine


CONFIG = f"scheduler: {{profiles: [{{name: {NAME}, config: {{ship: Beagle}}}}], defaultProfileName: {NAME}}}"


async def test_a_new_backend_needs_a_class_and_its_name_in_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.BUILDERS, NAME, build)  # type: ignore[arg-type]
    async with cluster("koord", Crews) as sim:
        await sim.client().create(CustomResourceDefinition.RESOURCE, KIND)
        async with operator(sim, CONFIG) as made:
            await sim.client().create(PodCliqueSet, pcs("d", clique("a", 2), clique("b"), namespace="ns"))

            async def all_bound() -> bool:
                found = (await sim.client().list(Pod, "ns")).items
                return len(found) == 3 and all(pod.is_bound for pod in found)

            await eventually(all_bound)
            crew = await sim.client().get(CREW, "d-0", "ns")
            assert crew["spec"] == {"ship": "Beagle", "hands": 3}

            enabled = Backends(made.backends.all, NAME)
            packed = pcs("e", clique("a"), topologyConstraint={"topologyName": "t", "pack": {"required": "rack"}})
            told = faults(Admission(backends=enabled), packed)
            assert "spec.template.topologyConstraint: Forbidden: crews sail anywhere" in told

            await sim.client().delete(CREW, "d-0", "ns")
            await eventually(lambda: _is_there(sim.client(), "d-0"))
            await sim.client().delete(PodCliqueSet, "d", "ns")
            await asyncio.sleep(60)
            assert (await sim.client().list(CREW, "ns")).items == []


async def _is_there(client: object, name: str) -> bool:
    page = await client.list(CREW, "ns")  # type: ignore[attr-defined]
    return [one["metadata"]["name"] for one in page.items] == [name]


def test_its_options_are_checked_like_those_of_the_others() -> None:
    assert build({"ship": "Beagle"}, "p").ship == "Beagle"
    with pytest.raises(backends.ConfigError, match=r"p\.sails: unknown field"):
        build({"sails": 3}, "p")
    assert CrewBackend("x").validate(set_of(pcs("d", clique("a")))) == ()
