"""Takes Kueue's finalizer off pods that are deleted.

Kueue leaves its finalizer on a deleted pod of a group until a replacement exists or the Workload is deleted. A pod of a
gang that is scaled in has no replacement, so it would stay for ever. The replacement of a pod that runs is created when
the old pod is gone. Kueue still counts a pod that terminates on its node, with or without the finalizer.
"""

from __future__ import annotations

from grove.api import kueue
from grove.api.core import Pod
from grove.api.meta import Key
from grove.kube.controller import DONE, Result
from grove.kube.wakes import Wake, own_key
from grove.operator.shared.cluster.deps import Deps
from grove.operator.shared.cluster.pod_cleanup import release


class KueueFinalizerController:
    """Reads no object of Kueue, so Kueue may be gone."""

    def __init__(self, deps: Deps) -> None:
        self._cache, self._client, self._queue = deps.cache, deps.client, deps.queues.kueue_pods
        deps.follow(self.wakes())

    def wakes(self) -> tuple[Wake[Pod, Key], ...]:
        return (Wake(Pod, own_key, self._queue.add, kueue.keeps_deleted),)

    async def reconcile(self, key: Key) -> Result:
        pod = self._cache.get(Pod, key)
        if pod is not None and pod.metadata.is_deleting:
            await release(self._cache, self._client, pod, kueue.MANAGED)
        return DONE
