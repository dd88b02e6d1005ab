"""Sends the pods of an object ahead when the object itself goes.

The garbage collector would come to them last, one by one, after everything between the object and its pods is gone. One
request does it at once. It is safe while our finalizer holds the object: until that is off nobody can have made another
of the same name, whose pods would carry the same labels.
"""

from __future__ import annotations

import structlog

from grove.api.core import Pod
from grove.api.meta import Object
from grove.kube.client import Client
from grove.kube.errors import KubeError

ORPHAN = "orphan"
"""Kubernetes' own finalizer on an object whose children its deleter wants to keep."""

log = structlog.get_logger(__name__)


async def send_pods_ahead(client: Client, owner: Object, child: type[Object], labels: str) -> None:
    """Deletes the pods with these labels; if that fails, the garbage collector does it later.

    Not if the owner's deleter wants to keep them. Then its children have lost their reference to it by the time the
    finalizer that says so is off, which can be before we look; hence a question to the server, not to the cache.
    """
    if ORPHAN in owner.metadata.finalizers:
        return
    namespace = owner.metadata.namespace
    try:
        page = await client.list(child, namespace, labels=labels, limit=1)
        if any(ref.uid == owner.metadata.uid for one in page.items for ref in one.metadata.owner_references):
            await client.delete_collection(Pod, namespace, labels=labels)
    except KubeError as error:
        log.info("pods are left to the garbage collector", owner=str(owner.key), error=str(error))
