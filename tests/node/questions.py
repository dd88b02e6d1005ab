"""Requests that admission must answer, sent all the time while something is done to the operator."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from grove.api.podcliqueset import PodCliqueSet
from grove.kube.config import load_config
from grove.kube.errors import KubeError
from grove.kube.http import HttpClient
from grove.local.nodes.cluster import RealCluster

PAUSE_S = 0.05


@dataclass
class Questions:
    """Dry runs of a set that is created, one after the other."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        first = f", first: {self.failed[0]}" if self.failed else ""
        return f"{self.answered} requests answered by admission, {len(self.failed)} failed{first}"


@contextmanager
def asked_all_the_time(cluster: RealCluster, manifest: dict[str, Any], namespace: str) -> Iterator[Questions]:
    """Asks from before the block until after it; the counts are complete then."""
    questions, over, begun = Questions(), threading.Event(), threading.Event()
    wanted = manifest | {"metadata": {"name": "asked", "namespace": namespace}}

    async def ask() -> None:
        async with HttpClient(load_config(cluster.kubeconfig)) as client:
            while not over.is_set():
                try:
                    await client.create(PodCliqueSet, wanted, dry_run=True)
                    questions.answered += 1
                except KubeError as error:
                    questions.failed.append(str(error))
                begun.set()
                await asyncio.sleep(PAUSE_S)

    # A thread, because helm and kubectl block this one. It starts in the network of this one.
    asking = threading.Thread(target=lambda: asyncio.run(ask()), name="questions")
    asking.start()
    try:
        assert begun.wait(60.0), "the first request has no answer"
        yield questions
    finally:
        over.set()
        asking.join()
