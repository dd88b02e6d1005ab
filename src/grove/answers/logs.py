"""`logs` and `exec`, by role instead of by pod name: `chat/decode/0 leader`."""

from __future__ import annotations

from collections.abc import Sequence

from grove.answers.answer import Unanswered, object_name
from grove.answers.subjects import is_kind, pods_in, set_called, subject
from grove.api.core import Pod
from grove.diagnosis.roles import NoSuchRole, Player, players
from grove.diagnosis.seen import read
from grove.kube.client import Client
from grove.kube.errors import KubeError

NO_ADDRESS = "no preferred addresses found"
"""What the API server says of a node that does not say where its kubelet is."""


async def chosen(
    client: Client, namespace: str, target: str, clique: str = "", replica: int | None = None
) -> list[Player]:
    """The pods that `SET[/GROUP|/CLIQUE[/REPLICA]] [CLIQUE]` or `KIND/NAME` means."""
    if is_kind(target):
        asked = await subject(client, namespace, target)
        own = pods_in(asked.seen, target) if asked.seen.sets else set()
        own_players = (
            [player for player in players(asked.seen, asked.seen.sets[0]) if player.pod.metadata.name in own]
            if own
            else []
        )
        if not own_players:
            raise Unanswered(f"{target} has no pods of a PodCliqueSet; kubectl logs reads other pods")
        return own_players
    name, _, rest = object_name(target).partition("/")
    part, _, number = rest.partition("/")
    if number and not number.isdecimal():
        raise Unanswered(f"{target}: the replica is a number, as in {name}/{part}/0")
    seen = await set_called(client, namespace, name, read)
    try:
        return players(seen, seen.sets[0], part, int(number) if number else None, clique, replica)
    except NoSuchRole as error:
        raise Unanswered(str(error)) from error


async def latest_lines(client: Client, pods: Sequence[Pod], tail: int) -> dict[str, list[str]]:
    """The last lines of the first container of each pod, by name; of a pod that has none to give, the reason."""
    read = getattr(client, "log_lines", None)
    lines_of: dict[str, list[str]] = {}
    for pod in pods:
        container = pod.spec.containers[0].name if pod.spec.containers else ""
        lines = lines_of[f"{pod.metadata.name} ({container})"] = []
        if read is None:
            lines.append("there are no logs on this cluster: its pods are simulated")
            continue
        try:
            query = {"tailLines": str(tail), "container": container}
            lines += [line async for line in read(pod.metadata.namespace, pod.metadata.name, query)]
        except KubeError as error:
            lines.append(" ".join(str(error).split()))
    return lines_of
