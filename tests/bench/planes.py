"""The control planes of benchmarks: stock settings, all controllers, as people have them.

What stays of our local control plane: nodes without heartbeats are not declared lost, because fake ones send none, and
etcd does not wait for the disk, which is not what is measured.
"""

from __future__ import annotations

import os
from pathlib import Path

from grove.local.controlplane import ControlPlane

STOCK = ("--kube-api-qps=20", "--kube-api-burst=30")
"""What kube-controller-manager has by default; our local control plane gives it more."""


def stock_plane(directory: Path | str) -> ControlPlane:
    os.environ.pop("GOGC", None)  # tests collect less garbage than a stock control plane does
    return ControlPlane(directory, controller_manager=True, extra_controller_manager_args=STOCK)
