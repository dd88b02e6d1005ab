"""Claim templates of other namespaces: a set may name those that its author may read, at every level that shares."""

from __future__ import annotations

import pytest
from tests.support.reviews import changed, faults, plain, review_of

from grove.admission.rules.lookups import Known
from grove.admission.rules.review import VALIDATE_SET, Admission
from grove.admission.serving.reader import ClusterReader
from grove.api.core import SUBJECT_ACCESS_REVIEW
from grove.api.meta import Json, Key, Resource
from grove.kube.errors import NotFound, Unavailable

ADMISSION = Admission()
THEIRS = Key("infra", "gpu")
T = "spec.template"
SHARE = {"name": "gpu", "namespace": "infra", "scope": "AllReplicas"}
LEVELS = [T, f"{T}.cliques.0", f"{T}.podCliqueScalingGroups.0"]


def shares(level: str, entry: Json = SHARE) -> Json:
    return changed(plain(), ("metadata.namespace", "team"), (f"{level}.resourceSharing", [entry]))


@pytest.mark.parametrize("level", LEVELS)
def test_without_the_right_to_read_it_a_template_is_refused_at_every_level(level: str) -> None:
    path = level.replace(".0", "[0]") + ".resourceSharing[0].namespace"
    want = [f"{path}: Forbidden: you may not get resourceclaimtemplates/gpu in namespace infra"]
    assert faults(ADMISSION, shares(level), lookups=Known(templates={THEIRS: False})) == want
    assert faults(ADMISSION, shares(level), lookups=Known()) == want, "what nobody asked about is not allowed"


@pytest.mark.parametrize("level", LEVELS)
def test_with_it_the_set_is_admitted(level: str) -> None:
    assert faults(ADMISSION, shares(level), lookups=Known(templates={THEIRS: True})) == []


def test_a_request_is_refused_if_the_api_server_does_not_answer() -> None:
    (told,) = faults(ADMISSION, shares(T), lookups=Known(templates={THEIRS: Unavailable("busy")}))
    assert "the API server did not say whether you may read infra/gpu" in told


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({**SHARE, "namespace": "team"}, id="of its own namespace, said"),
        pytest.param({**SHARE, "namespace": ""}, id="of its own namespace, not said"),
    ],
)
def test_templates_of_the_set_s_own_namespace_are_not_asked_about(entry: Json) -> None:
    assert ADMISSION.needs(VALIDATE_SET, review_of(shares(T, entry))).templates == frozenset()
    assert faults(ADMISSION, shares(T, entry)) == []


class AccessReviews:
    """An API server that answers SubjectAccessReviews, and remembers them."""

    def __init__(self, allowed: bool) -> None:
        self.allowed, self.asked = allowed, list[Json]()

    async def create(self, resource: Resource, review: Json) -> Json:
        assert resource == SUBJECT_ACCESS_REVIEW
        self.asked.append(review["spec"])
        return {**review, "status": {"allowed": self.allowed}}


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_api_server_is_asked_in_the_name_of_who_wrote_the_set(allowed: bool) -> None:
    review = review_of(shares(T))
    review["request"]["userInfo"] = {"username": "jane", "groups": ["team"], "extra": {"scopes": ["a"]}}
    server = AccessReviews(allowed)
    known = await ClusterReader(server).fetch(ADMISSION.needs(VALIDATE_SET, review))  # type: ignore[arg-type]
    assert known.may_read_template(THEIRS) is allowed
    (spec,) = server.asked
    assert (spec["user"], spec["groups"], spec["extra"]) == ("jane", ["team"], {"scopes": ["a"]})
    assert spec["resourceAttributes"] == {
        "verb": "get",
        "group": "resource.k8s.io",
        "resource": "resourceclaimtemplates",
        "namespace": "infra",
        "name": "gpu",
    }


class WithoutReviews:
    async def create(self, resource: Resource, review: Json) -> Json:
        raise NotFound("there is no such resource")


async def test_who_cannot_be_asked_allows_nothing() -> None:
    known = await ClusterReader(WithoutReviews()).fetch(ADMISSION.needs(VALIDATE_SET, review_of(shares(T))))  # type: ignore[arg-type]
    (told,) = faults(ADMISSION, shares(T), lookups=known)
    assert "the API server did not say whether you may read infra/gpu" in told
