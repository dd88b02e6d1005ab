"""Reads the templates of before an update, for what is made where the update has not come to."""

from __future__ import annotations

from grove.api import labels
from grove.api.core import ControllerRevision
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.kube.client import Client
from grove.kube.errors import Forbidden, NotFound
from grove.operator.shared.diff import is_controlled_by
from grove.operator.shared.rollout import is_origin, origin


class FormerTemplates:
    """Finds the ControllerRevision that an open update started from; asks the API server once for each update."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kept: dict[str, tuple[str, Json]] = {}

    async def find(self, pcs: PodCliqueSet) -> Json | None:
        """The templates of before an update that is open or begins; None if their revision is not kept."""
        before, uid = origin(pcs), pcs.metadata.uid
        if not before:
            return None
        known = self._kept.get(uid)
        if known is None or known[0] != before:
            data = await self._read(pcs)
            if data is None:
                return None
            known = self._kept[uid] = (before, data)
        return known[1]

    async def _read(self, pcs: PodCliqueSet) -> Json | None:
        own = f"{labels.COMPONENT}={labels.REVISION_COMPONENT},{labels.PART_OF}={pcs.metadata.name}"
        try:
            page = await self._client.list(ControllerRevision, pcs.metadata.namespace, labels=own)
        except (Forbidden, NotFound):
            return None
        origins = (item for item in page.items if is_origin(pcs, item) and is_controlled_by(item, pcs))
        return next((revision.kept for revision in origins), None)

    def forget(self, uid: str) -> None:
        self._kept.pop(uid, None)
