"""The control planes of benchmarks: stock settings, all controllers, as people have them.

Two settings of our local control plane stay. Nodes without heartbeats are not declared lost, because fake ones send
none. And etcd does not wait for the disk, because the benchmarks do not measure the disk.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from grove.local.controlplane import ControlPlane
from grove.local.state import GRACE_S

STOCK = ("--kube-api-qps=20", "--kube-api-burst=30")
"""What kube-controller-manager has by default; our local control plane gives it more."""
CONTROLLERS = "kube-controller-manager"


class StockPlane(ControlPlane):
    """Its controllers may be hurried until `settle`: a thousand new nodes take them minutes with stock settings."""

    def settle(self) -> None:
        """Starts the controllers again with stock settings; what is measured comes after."""
        self._children.pop(CONTROLLERS).stop(GRACE_S[CONTROLLERS])
        self.blueprint.settings = replace(self.settings, extra_controller_manager_args=STOCK)
        self._start_controllers()


def stock_plane(directory: Path | str, *, hurried: bool = False, scheduler: bool = False) -> StockPlane:
    os.environ.pop("GOGC", None)  # tests collect less garbage than a stock control plane does
    return StockPlane(
        directory,
        controller_manager=True,
        scheduler=scheduler,
        extra_controller_manager_args=() if hurried else STOCK,
    )
