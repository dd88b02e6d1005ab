"""What a name on the command line means: a set or a part of it, a gang, a scaling group, a clique or a pod."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from grove.answers.answer import SET_KINDS, Unanswered
from grove.answers.dialects import find_translated
from grove.api import labels
from grove.api.core import Namespace, Pod
from grove.api.meta import Key, Object
from grove.api.podclique import PodClique
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.scalinggroup import PodCliqueScalingGroup
from grove.diagnosis.roles import NoSuchRole, cliques_of_part, players
from grove.diagnosis.seen import Seen, read
from grove.kube.client import Client
from grove.kube.errors import KubeError, NotFound

KINDS = {
    "pcs": "PodCliqueSet",
    "pg": "PodGang",
    "pcsg": "PodCliqueScalingGroup",
    "pclq": "PodClique",
    "po": "Pod",
}
MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a question, with everything that was read of its set. `gangs` contain it or are part of it.

    `pods` are its own pods that are not being deleted.
    """

    kind: str
    name: str
    seen: Seen
    gangs: tuple[PodGang, ...]
    pods: tuple[Pod, ...] = ()

    @property
    def is_set(self) -> bool:
        return self.kind == "PodCliqueSet"


async def subject(client: Client, namespace: str, text: str) -> Subject:
    """The object of that name: `chat`, `pg/chat-0`, `pod/chat-0-w-abcde` …; the first kind that has it, outside in.

    `chat/decode` is a scaling group or clique of a set in all its replicas, `chat/decode/1` one instance or pod of it.
    """
    wanted, name = _split(text)
    if "/" in name:
        return await _part(client, namespace, name)
    if wanted in ("", "PodCliqueSet") and (seen := await _find_set(client, namespace, name, read)) is not None:
        whole = tuple(seen.of_set(seen.gangs, seen.sets[0]))
        return Subject("PodCliqueSet", name, seen, whole, _staying(seen.of_set(seen.pods, seen.sets[0])))
    kind, obj = await _find(client, namespace, wanted, name)
    if obj is None:
        raise Unanswered(await _absent(client, namespace, wanted, name))
    owner = obj.metadata.labels.get(labels.PART_OF, "")
    try:
        seen = await read(client, namespace, only_set=owner) if owner else Seen()
    except* NotFound:
        seen = Seen()
    gangs = _gangs_of(seen, kind, obj)
    if kind == "PodGang" and not any(gang.metadata.name == name for gang in seen.gangs):
        seen = replace(seen, gangs=[*gangs, *seen.gangs])
    return Subject(kind, name, seen, tuple(gangs), _staying(_pods_of(seen, kind, obj)))


async def _part(client: Client, namespace: str, text: str) -> Subject:
    """A part of a set by the names in its manifest: `SET/GROUP`, `SET/CLIQUE`, `SET/GROUP/N`."""
    name, _, rest = text.partition("/")
    part, _, number = rest.partition("/")
    if number and not number.isdecimal():
        raise Unanswered(f"{text}: the replica is a number, as in {name}/{part}/0")
    try:
        seen = await set_called(client, namespace, name, read)
    except Unanswered as error:
        raise Unanswered(f"{error}; {name} is not a kind either: {', '.join(KINDS)}") from error
    cliques = cliques_in(seen, text)
    pods: tuple[Pod, ...] = ()
    try:
        pods = tuple(player.pod for player in players(seen, seen.sets[0], part, int(number) if number else None))
    except NoSuchRole as error:
        if not cliques:
            raise Unanswered(str(error)) from error
    owned: Sequence[Object] = pods or cliques  # without pods the cliques name the gangs
    keys = {Key(obj.metadata.namespace, obj.metadata.labels.get(labels.POD_GANG, "")) for obj in owned}
    gangs = tuple(gang for gang in seen.gangs if gang.metadata.key in keys)
    return Subject("part", text, seen, gangs, pods)


def is_kind(text: str) -> bool:
    """True if a name begins with the kind of a part of a set, as `pg/chat-0` does."""
    return _split(text)[0] not in ("", "PodCliqueSet")


def object_kind(text: str) -> tuple[type[Object] | None, str]:
    """Kind and name of `pcsg/NAME`, `pclq/NAME` and others; no kind for a set or a part of one."""
    kind, name = _split(text)
    return (_kinds()[kind], name) if kind not in ("", "PodCliqueSet") else (None, text)


def pods_in(seen: Seen, text: str) -> set[str]:
    """Names of the pods of a subject with a slash, among what was read of its set; none if it is gone."""
    kind, name = _split(text)
    if not kind:
        part, _, number = name.partition("/")[2].partition("/")
        try:
            return {
                player.pod.metadata.name
                for player in players(seen, seen.sets[0], part, int(number) if number else None)
            }
        except NoSuchRole:
            return set()
    if kind in ("Pod", "PodCliqueSet"):
        return {pod.metadata.name for pod in seen.pods if kind == "PodCliqueSet" or pod.metadata.name == name}
    return {pod.metadata.name for pod in seen.pods if pod.metadata.labels.get(_pod_labels()[kind]) == name}


def leaves_in(seen: Seen, text: str) -> set[str]:
    """The names of the pods and of the cliques of a subject with a slash: a clique without pods is a leaf itself."""
    return pods_in(seen, text) | {clique.metadata.name for clique in cliques_in(seen, text)}


def cliques_in(seen: Seen, text: str) -> list[PodClique]:
    """The cliques of a subject with a slash, also those without pods."""
    kind, name = _split(text)
    if not kind:
        part, _, number = name.partition("/")[2].partition("/")
        return cliques_of_part(seen, seen.sets[0], part, int(number) if number else None)
    if kind == "PodCliqueSet":
        return list(seen.cliques)
    if kind == "Pod":
        names = {pod.metadata.labels.get(labels.POD_CLIQUE) for pod in seen.pods if pod.metadata.name == name}
        return [clique for clique in seen.cliques if clique.metadata.name in names]
    if kind == "PodClique":
        return [clique for clique in seen.cliques if clique.metadata.name == name]
    return [clique for clique in seen.cliques if clique.metadata.labels.get(_pod_labels()[kind]) == name]


async def subject_names(client: Client, namespace: str, incomplete: str) -> list[str]:
    """Subjects that a shell may complete: sets, `SET/PART`, `SET/PART/N`, or names of the kind before the slash."""
    head, slash, rest = incomplete.partition("/")
    kind, _ = _split(f"{head}/")
    if not slash:
        return sorted(pcs.metadata.name for pcs in (await client.list(PodCliqueSet, namespace)).items)
    if kind:
        items = (await client.list(_kinds()[kind], namespace)).items
        return sorted(f"{head}/{item.metadata.name}" for item in items)
    seen = await _find_set(client, namespace, head, read)
    if seen is None:
        return []
    template = seen.sets[0].spec.template
    part, deeper, _ = rest.partition("/")
    groups = {group.name for group in template.pod_clique_scaling_groups}
    if not deeper:
        return sorted(f"{head}/{name}" for name in groups | {clique.name for clique in template.cliques})
    of_group = [group.indexes for group in seen.groups if group.metadata.name.endswith(f"-{part}")]
    of_clique = [range(clique.spec.replicas) for clique in seen.cliques if clique.metadata.name.endswith(f"-{part}")]
    numbers = {number for each in (of_group if part in groups else of_clique) for number in each}
    return [f"{head}/{part}/{number}" for number in sorted(numbers)]


def _kinds() -> dict[str, type[Object]]:
    kinds: tuple[type[Object], ...] = (PodCliqueSet, PodGang, PodCliqueScalingGroup, PodClique, Pod)
    return {kind.RESOURCE.kind: kind for kind in kinds}


def _pods_of(seen: Seen, kind: str, obj: Object) -> Sequence[Pod]:
    if isinstance(obj, Pod):
        return [obj]
    return [pod for pod in seen.pods if pod.metadata.labels.get(_pod_labels()[kind]) == obj.metadata.name]


def _pod_labels() -> dict[str, str]:
    """The label of a pod that names its owner, by the owner's kind."""
    return {
        "PodGang": labels.POD_GANG,
        "PodCliqueScalingGroup": labels.SCALING_GROUP,
        "PodClique": labels.POD_CLIQUE,
    }


def _staying(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if not pod.metadata.is_deleting)


def _split(text: str) -> tuple[str, str]:
    """Kind and name of `kind/name` as kubectl takes it; no kind where none is given. `SET/PART` stays whole."""
    head, slash, name = text.partition("/")
    word = head.split(".")[0].lower()
    if not slash:
        return "", text
    if word in SET_KINDS:
        return "PodCliqueSet", name
    for short, kind in KINDS.items():
        if word in (short, kind.lower(), f"{kind.lower()}s"):
            return kind, name
    return "", text


def _unless_of_the_object(group: BaseExceptionGroup[Any]) -> None:
    """Goes on when the object is missing; a cluster without the kind is another matter."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _unless_of_the_object(error)
        elif not getattr(error, "details", {}).get("name"):
            raise error


async def _find(client: Client, namespace: str, wanted: str, name: str) -> tuple[str, Object | None]:
    kinds = [kind for name, kind in _kinds().items() if name != "PodCliqueSet"]
    for kind in kinds:
        if wanted in ("", kind.RESOURCE.kind):
            try:
                return kind.RESOURCE.kind, await client.get(kind, name, namespace)
            except NotFound as error:
                if not error.details.get("name"):
                    raise
    return "", None


def _gangs_of(seen: Seen, kind: str, obj: Object) -> list[PodGang]:
    if isinstance(obj, PodGang):
        return [obj]
    meta = obj.metadata
    if kind == "PodCliqueScalingGroup":
        members = [clique for clique in seen.cliques if clique.metadata.labels.get(labels.SCALING_GROUP) == meta.name]
        names = {clique.metadata.labels.get(labels.POD_GANG, "") for clique in members}
    else:
        names = {meta.labels.get(labels.POD_GANG, "")}
    return [seen.gang_of[key] for name in sorted(names) if (key := Key(meta.namespace, name)) in seen.gang_of]


async def _absent(client: Client, namespace: str, wanted: str, name: str) -> str:
    """That there is no such thing, and what there is."""
    await ensure_namespace(client, namespace)
    what = wanted or "PodCliqueSet, PodGang, group, clique or pod"
    there = await existing(client, PodCliqueSet, namespace, name)
    return f"there is no {what} {name} in namespace {namespace}{there}"


async def ensure_namespace(client: Client, namespace: str) -> None:
    """Raises when there is no such namespace: an empty answer about one that was mistyped sounds like a good one."""
    if not namespace:
        return
    try:
        await client.get(Namespace, namespace)
    except NotFound as error:
        if error.details.get("name"):
            there = await existing(client, Namespace, name=namespace)
            raise Unanswered(f"there is no namespace {namespace}{there}") from error
    except KubeError:
        pass  # a caller without the right to list namespaces gets no hint about them


async def existing(client: Client, kind: type[Any], namespace: str = "", name: str = "") -> str:
    """The existing names of a kind, as the end of a sentence about a name that does not exist."""
    try:
        names = [item.metadata.name for item in (await client.list(kind, namespace)).items]
    except KubeError:
        return ""
    return there_are(kind.RESOURCE.kind, names, name)


def there_are(kind: str, names: Collection[str], name: str = "") -> str:
    """The one that is nearest to the name that was meant, else the first of those there are: the end of a sentence."""
    if not names:
        return f"; there is no {kind} at all"
    if nearest := get_close_matches(name, sorted(names), n=1):
        return f"; did you mean {nearest[0]}?"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"; of {kind}s there are {', '.join(sorted(names)[:MOST_NAMED])}{more}"


async def _find_set(client: Client, namespace: str, name: str, read: Any) -> Seen | None:
    """The set of that name, or the one that is kept for a dialect's object of that name."""
    seen: Seen | None = None
    try:
        seen = await read(client, namespace, only_set=name)
    except* NotFound as group:
        _unless_of_the_object(group)
    if seen is None and (behind := await find_translated(client, namespace, name)):
        seen = await read(client, namespace, only_set=behind)
    return seen


async def set_named(client: Client, namespace: str, name: str) -> PodCliqueSet:
    """The set of that name alone, or the one kept for a dialect's object of that name; or what sets there are."""
    if "/" in name:
        raise Unanswered(f"{name} is a part of a set; this command takes the whole set: {name.partition('/')[0]}")
    try:
        return await client.get(PodCliqueSet, name, namespace)
    except NotFound as error:
        if not error.details.get("name"):
            raise
    if behind := await find_translated(client, namespace, name):
        return await client.get(PodCliqueSet, behind, namespace)
    raise Unanswered(await _no_set(client, namespace, name))


async def _no_set(client: Client, namespace: str, name: str) -> str:
    await ensure_namespace(client, namespace)
    there = await existing(client, PodCliqueSet, namespace, name)
    return f"there is no PodCliqueSet {name} in namespace {namespace}{there}"


async def set_called(client: Client, namespace: str, name: str, read: Any) -> Seen:
    """The set of that name with all its parts; or what sets there are."""
    seen = await _find_set(client, namespace, name, read)
    if seen is not None:
        return seen
    raise Unanswered(await _no_set(client, namespace, name))
