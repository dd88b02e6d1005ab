"""The network of a cluster of real nodes: a bridge in the control plane's namespace, a cable to each node, routes.

Each node has a range of pod addresses, and routes lead to it. So packets between pods cross the node's own namespace,
where kube-proxy translates cluster addresses.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from grove.local.blueprint import SERVICE_RANGE
from grove.local.nodes.layout import HUB, WIRE, Place

_CLONE_NEWNET = 0x40000000


def lay_hub() -> None:
    """The bridge with the control plane's address. Packets to cluster addresses need a route to be translated."""
    ip("link set lo up")
    ip(f"link add {WIRE} type bridge")
    ip(f"address add {HUB}/24 dev {WIRE}")
    ip(f"link set {WIRE} up")
    ip(f"route add {SERVICE_RANGE} dev {WIRE}")


def plug_in(place: Place, holder: int, others: Sequence[Place]) -> None:
    """A cable between the hub and the namespace of process `holder`, and the routes of both ends."""
    ip(f"link add {place.link} type veth peer name eth0 netns {holder}")
    ip(f"link set {place.link} master {WIRE} up")
    ip(f"route add {place.pods} via {place.address}")
    inside = inside_of(holder)
    for command in (
        "link set lo up",
        f"address add {place.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {HUB}",
        *(f"route add {other.pods} via {other.address}" for other in others),
    ):
        subprocess.run([*inside, "ip", *command.split()], check=True)
    forwarding = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    subprocess.run([*inside, "sh", "-c", forwarding], check=True)


def inside_of(holder: int) -> list[str]:
    """The beginning of a command that runs in the network and mount namespaces of a process."""
    # Not `ip netns exec`: it mounts /sys again and hides the cgroups.
    return ["nsenter", "--target", str(holder), "--net", "--mount", "--"]


def ip(command: str) -> None:
    subprocess.run(["ip", *command.split()], check=True)


def enter(process: int) -> None:
    """Moves the calling thread into the network namespace of a process. Threads and children that it starts follow."""
    namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
    try:
        _set_namespace(namespace)
    finally:
        os.close(namespace)


@contextmanager
def entered(process: int) -> Iterator[None]:
    """`enter` for the time of a block; after it the thread is back in its own network."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter(process)
        yield
    finally:
        _set_namespace(own)
        os.close(own)


def _set_namespace(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")
