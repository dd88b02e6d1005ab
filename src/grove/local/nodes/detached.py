"""Real nodes that outlive the process which started them, as `grove up --real-nodes` leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grove.local import controlplane
from grove.local.binaries import Say
from grove.local.controlplane import only_one
from grove.local.nodes import leftovers
from grove.local.nodes.cluster import RealCluster, clean, start
from grove.local.nodes.layout import Place
from grove.local.state import REAL_NODES, State, stop_in_order


def up(directory: Path, count: int, version: str, images: Sequence[Path], say: Say) -> RealCluster:
    """Starts the cluster, or finds the one that is up in that directory; the images are imported in either case."""
    directory = directory.absolute()
    with only_one(directory):
        before = State.load(directory)
        if before is not None and before.running():
            there = attach(directory, before)
            if there is None:
                raise controlplane.ControlPlaneError("its nodes are fake ones; `grove down` first, then again")
            say(f"already up: Kubernetes {before.version} at {before.server}, kubeconfig {before.kubeconfig}")
            for archive in images:
                there.import_image(archive)
            return there
        if before is not None:
            stop_in_order(before.children)
            State.forget(directory)

        def remember(cluster: RealCluster, *, ready: bool = False) -> State:
            # Also before it is ready: an `up` that is killed halfway must not leave an unknown process.
            state = State(cluster.version, cluster.server, cluster.kubeconfig, [cluster.first], ready)
            state.save(directory)
            return state

        try:
            real_cluster = start(
                directory, count, version=version, images=images, detached=True, say=say, began=remember
            )
        except BaseException:
            State.forget(directory)
            raise
        state = remember(real_cluster, ready=True)
        say(f"up: Kubernetes {state.version} at {state.server}, kubeconfig {state.kubeconfig}")
        return real_cluster


def attach(directory: Path, state: State) -> RealCluster | None:
    """The cluster of real nodes that runs in that directory; None if its nodes are fake ones."""
    first = next((child for child in state.children if child.name == REAL_NODES), None)
    if first is None:
        return None
    numbers = sorted(int(folder.name.removeprefix("node-")) for folder in directory.glob("node-*"))
    return RealCluster(directory, state.version, first, [Place(number, directory) for number in numbers])


def down(directory: Path, say: Say) -> bool:
    """Ends what `grove up` left in that directory, with fake or real nodes, also what a kill left; False if nothing."""
    directory = directory.absolute()
    left = leftovers.is_recorded(directory)
    ended = controlplane.down(directory, say=say)
    return clean(directory, say) or ended if left else ended
