"""An edit of the priority class alone, where pods do not carry it: the templates go by the names they had."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of

from grove.api.hashes import generation_hash, set_generation_hash
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.operator.podcliqueset.takeover import takeover
from grove.operator.shared.children import earlier_priority, template_hashes


def ours(priority: str, image: str = "a:1", **status: Any) -> PodCliqueSet:
    made = pcs("d", clique("a"), clique("b", priorityClassName="own"), priorityClassName=priority)
    made["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["containers"][0]["image"] = image
    return set_of(made, **status)


def gang_of(priority: str) -> PodGang:
    return msgspec.convert({"metadata": {"name": "d-0"}, "spec": {"priorityClassName": priority}}, PodGang)


@pytest.mark.parametrize(
    ("now", "gangs", "found"),
    [
        pytest.param(ours("high"), ["low"], "low", id="another class"),
        pytest.param(ours(""), ["low"], "low", id="none any more"),
        pytest.param(ours("high"), ["high", "low"], "low", id="a gang that has heard of it, and one that has not"),
        pytest.param(ours("high"), ["high"], None, id="gangs that have all heard of it"),
        pytest.param(ours("high", image="a:2"), ["low"], None, id="another image too"),
        pytest.param(ours("high"), [], None, id="no gang to tell"),
    ],
)
def test_an_edit_of_the_priority_alone_is_reported_by_the_gangs(
    now: PodCliqueSet, gangs: list[str], found: str | None
) -> None:
    recorded = msgspec.structs.replace(now.status, current_generation_hash=generation_hash(ours("low").spec.template))
    edited = msgspec.structs.replace(now, status=recorded)
    assert earlier_priority(edited, map(gang_of, gangs)) == found


def test_after_edits_of_the_priority_alone_the_templates_go_by_the_names_they_had() -> None:
    first = ours("low")
    names, recorded = template_hashes(first), generation_hash(first.spec.template)
    status, before = msgspec.structs.replace(first.status, current_generation_hash=recorded), "low"
    for priority in ("high", "", "low", "high"):
        edited = msgspec.structs.replace(ours(priority), status=status)
        if set_generation_hash(edited) != recorded:
            names_kept = takeover(edited, (), (), [gang_of(before)]).adopted
            status = msgspec.structs.replace(status, adopted_hashes=names_kept)
            edited = msgspec.structs.replace(edited, status=status)
        assert set_generation_hash(edited) == recorded
        assert template_hashes(edited) == names
        before = priority
    changed = msgspec.structs.replace(ours("high", image="a:2"), status=status)
    assert set_generation_hash(changed) == generation_hash(changed.spec.template)
    assert template_hashes(changed)["b"] == names["b"]
