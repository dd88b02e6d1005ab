"""The part of `grove up` that brings real nodes up, and what it says about them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from grove.local import controlplane
from grove.local.binaries import Say
from grove.local.nodes import preflight
from grove.local.nodes.detached import up
from grove.local.state import State

INIT_IMAGE = "grove-initc.tar"
AFTER = """\
nothing can be pulled here: `grove up --real-nodes` with `--image ARCHIVE` imports an OCI archive, also while it is up
`kubectl port-forward` reaches a pod or a Service
`grove down` removes nodes, images and cgroups, and restores kernel settings
it leaves: certificates and logs in {directory}, the built programs, Debian's packages"""


def start_real_nodes(
    directory: Path, version: str, count: int, images: Sequence[Path], say: Say
) -> tuple[State, list[str]]:
    """The control plane with its nodes, and the beginning of commands that run in its network.

    This process moves into that network, where the probes of Grove's own programs answer.
    """
    say(preflight.words(count))
    archives = [*images, *_init_image(images, say)]
    cluster = up(directory, count, version, archives, say)
    say(f"{len(cluster.nodes)} real nodes are Ready: {', '.join(cluster.nodes)}")
    cluster.enter()
    state = controlplane.status(directory)
    if state is None:
        raise controlplane.ControlPlaneError(f"it ended again at once:\n{cluster.first.log_tail()}")
    return state, cluster.inside


def _init_image(given: Sequence[Path], say: Say) -> list[Path]:
    """The archive of the init container's image, where `make image` puts it, unless it was given."""
    if any(archive.name == INIT_IMAGE for archive in given):
        return []
    archive = Path(os.environ.get("GROVE_IMAGES", "dist")) / INIT_IMAGE
    if archive.exists():
        return [archive.absolute()]
    say(f"a set with a start order needs Grove's init image: `make image`, then --image dist/{INIT_IMAGE}")
    return []
