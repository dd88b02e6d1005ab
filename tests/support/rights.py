"""Rights that were just given: the API server's authorizer learns of roles and bindings from a watch."""

from __future__ import annotations

import subprocess

from grove.local.controlplane import ControlPlane
from tests.support.waiting import wait_until


def await_right(plane: ControlPlane, user: str, verb: str, resource: str, namespace: str = "") -> None:
    """Returns when the user may do this in the namespace, or everywhere."""
    where = ("--namespace", namespace) if namespace else ("--all-namespaces",)
    command = [plane.kubectl, "--kubeconfig", plane.kubeconfig, "auth", "can-i", verb, resource, "--as", user, *where]
    wait_until(
        lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0,
        what=f"{user} may {verb} {resource}",
    )
