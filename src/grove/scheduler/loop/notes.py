"""What a pod got, written into one annotation of it before its bind, and taken off where it is not so any more."""

from __future__ import annotations

from grove.api.core import Pod
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound, NotLeader
from grove.scheduler.model.facts import PodFacts


class PodNotes:
    """`what` is what the annotation is about, for people."""

    def __init__(self, client: Client, annotation: str, what: str) -> None:
        self._client, self._annotation, self._what = client, annotation, what
        self._noted: set[str] = set()
        """Uids of waiting pods that say something, or may: the cache may lag behind what was written."""

    def may_be_on(self, uid: str, known: Pod | None) -> bool:
        """Whether a pod may say something, by the cache or by what was written."""
        return uid in self._noted or (known is not None and self._annotation in known.metadata.annotations)

    def forget(self, uid: str) -> None:
        self._noted.discard(uid)

    async def write(self, pod: PodFacts, text: str | None) -> str:
        """Writes the text on the pod, or takes it off; the trouble with that, if any."""
        body = {"metadata": {"annotations": {self._annotation: text}, "uid": pod.uid}}
        if text is not None:
            self._noted.add(pod.uid)
        try:
            await self._client.patch(Pod, pod.name, body, pod.namespace)
            if text is None:
                self.forget(pod.uid)
        except NotFound:
            return ""  # the bind will find out
        except NotLeader:
            raise
        except KubeError as error:
            return f"{self._what} could not be written on it: {error}"
        return ""
