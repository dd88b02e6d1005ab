"""The history of a set's templates is read whole or not at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.manifests import clique, pcs
from tests.support.observed import set_of

from grove.api import labels
from grove.api.core import ControllerRevision
from grove.api.hashes import generation_hash
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.cache import Cache
from grove.kube.client import Page
from grove.kube.errors import Unavailable
from grove.kube.events import Recorder
from grove.operator.podcliqueset.revision_writer import RevisionWriter
from grove.operator.podcliqueset.rollout import next_revisions, revision_of


class Paged:
    """A server with one revision a page, and no answer to the first question for the second page."""

    def __init__(self, *kept: Json) -> None:
        self.kept = [msgspec.convert(one, ControllerRevision, strict=False) for one in kept]
        self.trouble: list[Exception] = [Unavailable("not now")]
        self.patches: list[tuple[str, Json]] = []

    async def list(self, kind: object, *_: object, next_page: str = "", **__: object) -> Page[ControllerRevision]:
        if next_page and self.trouble:
            raise self.trouble.pop()
        at = int(next_page or 0)
        return Page([self.kept[at]], "9", str(at + 1) if at + 1 < len(self.kept) else "")

    async def patch(self, kind: object, name: str, patch: Json, namespace: str) -> None:
        self.patches.append((name, patch))


async def test_a_history_of_which_a_part_could_not_be_read_is_not_believed() -> None:
    """The template is that of the first revision again: it is to come after the second."""
    there = set_of(pcs("web", clique("w")))
    now = generation_hash(there.spec.template)
    server: Any = Paged(revision_of(there, now, 1), revision_of(there, "other", 2))
    cache = Cache(server)
    cache.add(PodCliqueSet).put(there)
    writer = RevisionWriter(cache, server, Recorder(server, "test"))

    with pytest.raises(Unavailable):
        await writer.reconcile(there.key)
    await writer.reconcile(there.key)

    assert server.patches == [(f"web-{now}", {"revision": 3})]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        pytest.param("2", 2, id="a number"),
        pytest.param("0", 1, id="the newest stays"),
        pytest.param("9" * 5000, 5, id="more digits than a number has: the default"),
        pytest.param("many", 5, id="no number: the default"),
    ],
)
def test_how_many_revisions_are_kept(said: str, kept: int) -> None:
    there = set_of(pcs("web", clique("w"), metadata={"annotations": {labels.REVISION_HISTORY_LIMIT: said}}))
    found = [_stored(revision_of(there, f"hash{number}", number)) for number in range(1, 8)]
    assert len(found) + 1 - len(next_revisions(there, found).delete) == kept


def _stored(revision: Json) -> ControllerRevision:
    return msgspec.convert(revision, ControllerRevision, strict=False)
