"""A real control plane that has Grove's kinds before its controllers start.

A garbage collector that finds new kinds only later leaves what belongs to them for half a minute.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from grove.local.controlplane import ControlPlane

# File by file: the folder also holds the schemas they are made from, which kubectl would take for objects.
CRDS = [f"--filename={file}" for file in sorted(Path(__file__).parents[2].glob("src/grove/crds/*.yaml"))]
WAIT = ("wait", "--timeout=180s")

_NOT_MISSED = ("ttl", "endpoints", "endpointslice", "endpointslice-mirroring")
FEWER_CONTROLLERS = "--controllers=*," + ",".join(f"-{name}-controller" for name in _NOT_MISSED)
"""Without those that annotate every node and follow the pods of every Service: a tenth of all requests."""


class GrovePlane(ControlPlane):
    """kubectl stands for any client here; our own installer has tests of its own."""

    def _start_controllers(self) -> None:
        for words in (("apply", "--server-side"), (*WAIT, "--for=create"), (*WAIT, "--for=condition=Established")):
            done = subprocess.run(
                [self.kubectl, "--kubeconfig", self.kubeconfig, *words, *CRDS],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        super()._start_controllers()
