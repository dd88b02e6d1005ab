"""`rollout status`: a replica that is down is named once, and what is up to date counts by the names in use."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import msgspec
import pytest
from rich.console import Console
from tests.support.manifests import clique, pcs
from tests.support.observed import clique_of, set_of

from grove.api.core import Pod
from grove.api.hashes import pod_template_hash
from grove.diagnosis.processes import Process
from grove.diagnosis.rollouts import Down, Rollout, rollout_of, whole_rollout_of
from grove.diagnosis.seen import Seen
from grove.diagnosis.states import UPDATING
from grove.show.rollout_table import painted

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_replica_that_is_down_is_reported_once() -> None:
    down = tuple(Down(f"chat-{i}", NOW, "its engines") for i in range(3))
    sentence = "updating: chat-0 is down, waits for its engines; chat-1 is down, waits for its engines"
    console = Console(width=120, file=io.StringIO())
    console.print(painted("chat", Rollout(UPDATING, "", NOW, None, (), down, sentence=sentence), Process("o"), 120))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert [said.count(one.name + " is down") for one in down] == [1, 1, 1]


def test_pods_of_a_template_that_goes_by_another_name_are_up_to_date() -> None:
    """As those of a set that was taken over from another operator."""
    made = set_of(pcs("d", clique("a")))
    own = pod_template_hash(made.spec.template.cliques[0])
    theirs = set_of(pcs("d", clique("a")), adoptedHashes=[{"cliqueName": "a", "ownHash": own, "usedHash": "theirs"}])
    fqn = "d-0-a"
    labels = {"app.kubernetes.io/part-of": "d", "grove.io/podclique": fqn, "grove.io/pod-template-hash": "theirs"}
    owner = {"kind": "PodClique", "name": fqn, "uid": "c1", "controller": True}
    meta = {"name": f"{fqn}-x", "namespace": "default", "labels": labels, "ownerReferences": [owner]}
    pod = msgspec.convert({"metadata": meta}, Pod)
    seen = Seen([theirs], cliques=[clique_of(theirs, fqn)], pods=[pod])
    (role,) = rollout_of(seen, theirs, NOW).roles
    assert (role.hash, role.updated, role.pods) == ("theirs", 1, 1)


@pytest.mark.parametrize(("kind", "outdated"), [("RollingRecreate", 0), ("Coherent", 1)])
def test_a_pod_of_an_earlier_revision_is_outdated_only_under_coherent(kind: str, outdated: int) -> None:
    """The operator does not replace it under RollingRecreate: its template is that of now."""
    made = set_of(
        pcs("d", clique("a"), strategy={"type": kind}), revisions={"a": "second"}, currentGenerationHash="second"
    )
    fqn, own = "d-0-a", pod_template_hash(made.spec.template.cliques[0])
    labels = {"app.kubernetes.io/part-of": "d", "grove.io/podclique": fqn, "grove.io/pod-template-hash": own}
    owner = {"kind": "PodClique", "name": fqn, "uid": "c1", "controller": True}
    meta = {"name": f"{fqn}-x", "namespace": "default", "ownerReferences": [owner]}
    pod = msgspec.convert({"metadata": {**meta, "labels": {**labels, "grove.io/revision": "first"}}}, Pod)
    seen = Seen([made], cliques=[clique_of(made, fqn)], pods=[pod])

    found = whole_rollout_of(seen, made, NOW)

    assert [share.outdated for share in found.parts.revisions] == [outdated]
    assert found.roles[0].pods - found.roles[0].updated == outdated
