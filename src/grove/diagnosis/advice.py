"""Advice that can be followed: a change that was tried out, where it stands in the manifest, and a command to paste.

What admission refuses on a set that lives is offered as "delete it and apply it again with …". Pure: from a `Change`
and the set to values; the patch is the change itself, for programs and for tests that make it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grove.api import labels
from grove.api.meta import Json
from grove.api.podcliqueset import PodCliqueSet
from grove.api.podgang import PodGang
from grove.api.words import many
from grove.diagnosis.rollouts import role_of
from grove.scheduler.model import answers as kinds
from grove.scheduler.model.answers import Change

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Advice:
    """`in_place` can be done while the set lives; else the set has to be created again.

    `path` is the manifest's, `patch` a JSON patch of the set.
    """

    kind: str
    text: str
    in_place: bool
    path: str = ""
    command: str = ""
    patch: tuple[Json, ...] = ()

    @property
    def sentence(self) -> str:
        return self.text if self.in_place else f"delete it and apply it again with {self.text}"


def advice_for(
    changes: Iterable[Change],
    gang: PodGang,
    pcs: PodCliqueSet | None,
    levels: Sequence[tuple[str, str]] = (),
    gangs: Mapping[str, PodGang] = {},
    *,
    runs: bool,
) -> tuple[Advice, ...]:
    """Advice for all changes, in their order.

    A set that `runs` is not to be deleted while a smaller change helps. Smaller pods mean that all its pods are
    replaced, so such a set is not to have them either while another change helps.
    """
    advice = tuple(advice_of(change, gang, pcs, levels, gangs) for change in changes)
    if not runs:
        return advice
    in_place = tuple(each for each in advice if each.in_place)
    return tuple(each for each in in_place if each.kind != kinds.SMALLER_PODS) or in_place or advice


def advice_of(
    change: Change,
    gang: PodGang,
    pcs: PodCliqueSet | None,
    levels: Sequence[tuple[str, str]] = (),
    gangs: Mapping[str, PodGang] = {},
) -> Advice:
    """`levels` are the topology's words with their label keys; `gangs` are others by name, for what may end."""
    spoken = {key: name for name, key in levels}
    match change.kind:
        case kinds.UNCORDON:
            return Advice(change.kind, f"uncordon {_few(change.nodes)}", True, "", _on_nodes("uncordon", change))
        case kinds.UNTAINT:
            taints = change.names["taints"].split()
            text = f"remove or tolerate the taint {', '.join(taints)} of {_few(change.nodes)}"
            words = "taint node " + " ".join(change.nodes) + "".join(f" {key}-" for key in taints)
            return Advice(change.kind, text, True, "", f"kubectl {words}")
        case kinds.ADD_NODES:
            where = f" in {change.names['where']}" if change.names.get("where") else ""
            return Advice(change.kind, f"add {many(change.size, 'node')} like {change.subject}{where}", True)
        case kinds.RESTART:
            return _restart(change, gang, pcs)
        case kinds.MOVE_OTHERS:
            return _move(change, gang)
        case kinds.END_OTHER:
            return _end(change, gangs.get(change.subject))
        case kinds.SMALLER_PODS:
            return _smaller(change, gang, pcs)
        case kinds.FEWER_PODS:
            return _fewer(change, gang, pcs)
        case kinds.RELAX:
            return _relax(change, gang, pcs, spoken)
    raise AssertionError(f"no words for {change.kind}")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _on_nodes(verb: str, change: Change) -> str:
    return f"kubectl {verb} {' '.join(change.nodes)}"


def _restart(change: Change, gang: PodGang, pcs: PodCliqueSet | None) -> Advice:
    where = f" in {change.names['where']}" if change.names.get("where") else ""
    target = gang_subject(gang, pcs)
    whole = f"{target} whole" if not target.startswith("pg/") else "the gang whole"
    text = f"restart {whole}: its {many(change.size, 'running pod')} and the rest fit together{where}"
    return Advice(change.kind, text, True, "", restarting(gang, target))


def restarting(gang: PodGang, target: str) -> str:
    """The command that restarts a subject of the gang's namespace."""
    return f"kubectl grove -n {gang.metadata.namespace} restart {target}"


def gang_subject(gang: PodGang, pcs: PodCliqueSet | None) -> str:
    """How commands name the gang: `SET/GROUP/N` if it is one instance of a scaling group, else `pg/NAME`.

    `SET/GROUP/N` is instance N in every replica of the set, so it names one instance only if there is one replica.
    """
    if pcs is not None and pcs.spec.replicas == 1 and (instance := _instance_of(gang)) is not None:
        _, group, number = instance
        return f"{pcs.metadata.name}/{group}/{number}"
    return f"pg/{gang.metadata.name}"


def _instance_of(gang: PodGang) -> tuple[str, str, str] | None:
    """Replica of the set, scaling group and number of the instance that a scaled gang is; None for a base gang."""
    owner = gang.metadata.labels.get(labels.PART_OF, "")
    index, _, rest = gang.metadata.name.removeprefix(f"{owner}-").partition("-")
    if not owner or not rest or not gang.spec.podgroups:
        return None
    group = rest.rpartition("-")[0]
    member = gang.spec.podgroups[0].name.removeprefix(f"{owner}-{index}-{group}-")
    return index, group, member.split("-")[0]


def _move(change: Change, gang: PodGang) -> Advice:
    restarts = f"{many(change.size, 'pod')} {'restarts' if change.size == 1 else 'restart'}"
    text = f"move gang {change.subject} to {change.names['where']} ({restarts})"
    if change.numbers["gangs"] > 1:
        text = f"move {change.numbers['gangs']} gangs, {change.subject} to {change.names['where']} first ({restarts})"
    command = f"kubectl grove -n {gang.metadata.namespace} repack --for pg/{gang.metadata.name} --apply"
    return Advice(change.kind, text, True, "", command)


def _end(change: Change, other: PodGang | None) -> Advice:
    """Another gang gives way: its owner scales it down, which takes the last replicas first."""
    namespace, _, name = change.subject.partition("/")
    pods = many(change.size, "pod")
    if other is None:
        command = f"kubectl -n {namespace} delete pod {name}"
        return Advice(change.kind, f"free capacity: delete pod {change.subject}", True, "", command)
    owner, text = other.metadata.labels.get(labels.PART_OF, ""), f"free capacity: scale {change.subject} away ({pods})"
    if not owner:
        command = f"kubectl -n {namespace} delete podgang {name}"
        return Advice(change.kind, f"free capacity: delete PodGang {change.subject} ({pods})", True, "", command)
    if (instance := _instance_of(other)) is None:
        index = name.removeprefix(f"{owner}-")
        return Advice(change.kind, text, True, "", f"kubectl grove -n {namespace} scale {owner} {index}")
    index, group, number = instance
    command = f"kubectl grove -n {namespace} scale {owner}/{group} {number} --replica {index}"
    return Advice(change.kind, text, True, "", command)


def _smaller(change: Change, gang: PodGang, pcs: PodCliqueSet | None) -> Advice:
    resource = change.names["resource"]
    amount, before = change.numbers["to"], change.numbers["from"]
    text = f"ask for {amount} {resource} instead of {before} in each pod of {change.subject}"
    role = role_of(change.subject, pcs) if pcs is not None else None
    if pcs is None or role is None:
        return Advice(change.kind, text, True)
    index = pcs.spec.template.cliques.index(role)
    for number, container in enumerate(role.spec.pod_spec.get("containers") or ()):
        asked = container.get("resources") or {}
        holders = [name for name in ("limits", "requests") if resource in (asked.get(name) or {})]
        if not holders:
            continue
        base = f"/spec/template/cliques/{index}/spec/podSpec/containers/{number}/resources"
        key = resource.replace("~", "~0").replace("/", "~1")
        patch = tuple({"op": "replace", "path": f"{base}/{name}/{key}", "value": str(amount)} for name in holders)
        path = f"spec.template.cliques[{index}].spec.podSpec.containers[{number}].resources"
        return Advice(change.kind, text, True, path, _patching(gang, pcs, patch), patch)
    return Advice(change.kind, text, True)


def _fewer(change: Change, gang: PodGang, pcs: PodCliqueSet | None) -> Advice:
    before, after = change.numbers["from"], change.numbers["to"]
    text = f"minAvailable: {after} (now {before}) for {change.subject}"
    role = role_of(change.subject, pcs) if pcs is not None else None
    if pcs is None or role is None:
        return Advice(change.kind, text, False)
    index = pcs.spec.template.cliques.index(role)
    patch = ({"op": "add", "path": f"/spec/template/cliques/{index}/spec/minAvailable", "value": after},)
    path = f"spec.template.cliques[{index}].spec.minAvailable"
    text = f"minAvailable: {after} (now {before}) for {role.name}"
    return Advice(change.kind, text, False, path, _replacing(gang, pcs, patch), patch)


def _relax(change: Change, gang: PodGang, pcs: PodCliqueSet | None, spoken: Mapping[str, str]) -> Advice:
    before, after = (spoken.get(change.names[level], change.names[level]) for level in ("required", "to"))
    to = f"required: {after}" if after else f"preferred: {before}"
    holder = _holder(change.subject, gang, pcs) if pcs is not None else None
    if pcs is None or holder is None:
        return Advice(change.kind, f"{to} instead of required: {before} for {change.subject.rpartition('/')[2]}", False)
    path, place, preferred = holder
    pack = {"required": after} if after else {}
    if not after or preferred:
        pack["preferred"] = preferred or before
    patch: list[Json] = [{"op": "add", "path": f"{place}/pack", "value": pack}]
    text = f"{to} instead of required: {before} for {change.subject.rpartition('/')[2]}"
    return Advice(change.kind, text, False, f"{path}.pack.required", _replacing(gang, pcs, tuple(patch)), tuple(patch))


def _holder(subject: str, gang: PodGang, pcs: PodCliqueSet) -> tuple[str, str, str] | None:
    """Where the constraint of a part stands in the manifest, as a path and as a pointer, and what it prefers."""
    template, name = pcs.spec.template, gang.metadata.name
    whole = template.topology_constraint
    if subject in (name, f"{gang.metadata.namespace}/{name}"):
        group = next(
            (
                i
                for i, config in enumerate(template.pod_clique_scaling_groups)
                if _is_of_group(name, pcs, config.name) and config.topology_constraint is not None
            ),
            None,
        )
        if group is None:
            preferred = whole.preferred if whole is not None else ""
            return "spec.template.topologyConstraint", "/spec/template/topologyConstraint", preferred
        return _group_holder(pcs, group)
    for i, config in enumerate(template.pod_clique_scaling_groups):
        if config.topology_constraint is not None and _is_of_group(subject, pcs, config.name):
            member = role_of(subject, pcs)
            if member is None or member.name not in config.clique_names:
                return _group_holder(pcs, i)
    role = role_of(subject, pcs)
    if role is None or role.topology_constraint is None:
        return None
    index = template.cliques.index(role)
    where = f"cliques[{index}].topologyConstraint"
    return (
        f"spec.template.{where}",
        f"/spec/template/cliques/{index}/topologyConstraint",
        (role.topology_constraint.preferred),
    )


def _group_holder(pcs: PodCliqueSet, index: int) -> tuple[str, str, str]:
    constraint = pcs.spec.template.pod_clique_scaling_groups[index].topology_constraint
    pointer = f"/spec/template/podCliqueScalingGroups/{index}/topologyConstraint"
    path = f"spec.template.podCliqueScalingGroups[{index}].topologyConstraint"
    return path, pointer, constraint.preferred if constraint is not None else ""


def _is_of_group(name: str, pcs: PodCliqueSet, group: str) -> bool:
    """True for the name of a group's replica, or of an object in a replica: `chat-0-decode-1…`."""
    head, _, rest = name.partition(f"-{group}-")
    index = head.removeprefix(f"{pcs.metadata.name}-")
    return index.isdecimal() and rest.split("-")[0].isdecimal()


def _patching(gang: PodGang, pcs: PodCliqueSet, patch: Sequence[Json]) -> str:
    text = json.dumps(list(patch), separators=(",", ":"))
    return f"kubectl -n {gang.metadata.namespace} patch pcs {pcs.metadata.name} --type=json -p {shlex.quote(text)}"


FORGET: tuple[Json, ...] = tuple(
    {"op": "remove", "path": path} for path in ("/metadata/resourceVersion", "/metadata/uid", "/status")
)


def _replacing(gang: PodGang, pcs: PodCliqueSet, patch: Sequence[Json]) -> str:
    """Deletes the set and applies it with the change; what the server wrote into it stays behind."""
    name, namespace = pcs.metadata.name, gang.metadata.namespace
    text = json.dumps([*patch, *FORGET], separators=(",", ":"))
    changed = f"kubectl -n {namespace} get pcs {name} -o json | kubectl patch --local -f - --type=json -o json"
    return (
        f"{changed} -p {shlex.quote(text)} > {name}.json && kubectl -n {namespace} delete pcs {name} && "
        f"kubectl -n {namespace} apply -f {name}.json"
    )
