"""A page that is open ends when its viewer may no longer see what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from grove.api.core import Node, Pod
from grove.api.podcliqueset import PodCliqueSet
from grove.console import viewers
from grove.console.follow import Following
from grove.console.viewers import ClusterViewer, Followings
from grove.kube.connection import ClusterConfig
from grove.kube.credentials import Credential, Fixed
from grove.kube.errors import Forbidden, Unauthorized

BEFORE = (PodCliqueSet, Pod, Node)


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(BEFORE, True, id="the same rights"),
        pytest.param((PodCliqueSet, Pod), False, id="nodes are no longer theirs to see"),
        pytest.param(Unauthorized("the token has expired"), False, id="a token that ended"),
        pytest.param(Forbidden("no"), False, id="no right to ask for rights"),
    ],
)
async def test_rights_are_asked_for_again(now: Any, want: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def visible(_client: object, _namespace: str) -> Any:
        if isinstance(now, Exception):
            raise now
        return now

    monkeypatch.setattr(viewers, "visible_kinds", visible)
    config = ClusterConfig("http://127.0.0.1:1", credentials=Fixed(Credential("t")))
    viewer = ClusterViewer(config, Followings(config))
    try:
        assert await viewer.still_may(Following(viewer.client, BEFORE)) == want
    finally:
        await viewer.close()
