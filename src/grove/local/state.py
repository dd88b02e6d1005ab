"""What is remembered of a control plane that runs detached, so that another process can find and end it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from grove.local.process import Child

# In the order they are started. They are ended in the opposite order: an API server without etcd hangs for minutes.
ORDER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
REAL_NODES = "real-nodes"
"""A control plane with real nodes is one process here: the first of namespaces of their own."""
CORE = (REAL_NODES, *ORDER)
GRACE_S = {REAL_NODES: 60.0, "etcd": 5.0, "kube-apiserver": 8.0, "kube-controller-manager": 3.0, "kube-scheduler": 3.0}
COMPANION_GRACE_S = 6.0
"""For what else runs beside the control plane (fake nodes, operator, scheduler): all of it is ended first."""


@dataclass
class State:
    """A detached control plane. `ready` is false from its first process until all of it answers."""

    version: str
    server: str
    kubeconfig: Path
    children: list[Child]
    ready: bool = False

    def running(self) -> bool:
        """True if the control plane itself runs. Other processes of the cluster do not count."""
        core = [child for child in self.children if child.name in CORE]
        return self.ready and bool(core) and all(child.alive() for child in core)

    def save(self, directory: Path) -> None:
        content = {
            "version": self.version,
            "server": self.server,
            "kubeconfig": str(self.kubeconfig),
            "ready": self.ready,
            "processes": [
                {"name": child.name, "pid": child.pid, "birth": child.birth, "log": str(child.log)}
                for child in self.children
            ],
        }
        fresh = _file(directory).with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=2) + "\n")
        os.replace(fresh, _file(directory))

    @classmethod
    def load(cls, directory: Path) -> State | None:
        """None if there is no state, or none that can be read: then there is nothing known that could be ended."""
        try:
            content = json.loads(_file(directory).read_text())
            return cls(
                version=str(content["version"]),
                server=str(content["server"]),
                kubeconfig=Path(content["kubeconfig"]),
                children=[
                    Child(str(process["name"]), int(process["pid"]), str(process["birth"]), Path(process["log"]))
                    for process in content["processes"]
                ],
                ready=bool(content["ready"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def forget(directory: Path) -> None:
        _file(directory).unlink(missing_ok=True)


def stop_in_order(children: list[Child]) -> None:
    """End processes last-started first, each gone before the next is asked."""
    rank = {name: place for place, name in enumerate(CORE)}
    for child in sorted(children, key=lambda child: rank.get(child.name, len(rank)), reverse=True):
        child.stop(GRACE_S.get(child.name, COMPANION_GRACE_S))


def _file(directory: Path) -> Path:
    return directory / "state.json"
