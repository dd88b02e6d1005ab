"""`convert`: manifests in older spellings, rewritten as today's. Reads and prints YAML; asks no cluster.

Kinds were renamed (PodGangSet, ClusterTopology), fields moved (packDomain, network pack groups). What has no place
today is left out, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from grove.cli.access import FAULT, Unanswered

Json = dict[str, Any]

GROUP, SCHEDULER_GROUP = "grove.io/v1alpha1", "scheduler.grove.io/v1alpha1"
KINDS = {"PodGangSet": "PodCliqueSet", "ClusterTopology": "ClusterTopologyBinding"}
GANG_FIELDS = {
    "podGroups": "podgroups", "PodGroups": "podgroups", "networkPackGroupConfigs": "topologyConstraintGroupConfigs",
    "NetworkPackGroupConfigs": "topologyConstraintGroupConfigs",
}  # fmt: skip
GANG_GROUP_FIELDS = {"MinReplicas": "minReplicas", "PodReferences": "podReferences", "Name": "name"}
DROPPED = ("spreadConstraints", "SpreadConstraints")


@click.command()
@click.argument("file", type=click.File("r"), default="-")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Format of the result.")
def convert(file: Any, output: str) -> int:
    """Rewrite a file (or stdin) to today's kinds and fields; what was changed is told on stderr."""
    import yaml

    from grove.cli.access import formatted
    from grove.cli.terminal import printed

    try:
        documents = [one for one in yaml.safe_load_all(file.read()) if one is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Unanswered(f"{file.name}: not YAML: {' '.join(str(error).split())}") from error
    if any(not isinstance(one, dict) for one in documents):
        raise Unanswered(f"{file.name}: holds something that is no Kubernetes object")
    results = []
    for one in documents:
        converted, notes = converted_object(one)
        results.append(converted)
        where = f"{one.get('kind', '?')} {(one.get('metadata') or {}).get('name', '?')}"
        for note in notes:
            click.echo(f"{where}: {note}", err=True)
    if output == "json":
        printed(formatted(results if len(results) != 1 else results[0], "json", as_is=True))
    else:
        printed("---\n".join(formatted(one, "yaml", as_is=True) for one in results))
    return 0 if results else FAULT


def converted_object(obj: Json) -> tuple[Json, list[str]]:
    """The object in today's words, and a note for every change. Objects that are not Grove's come back as they are."""
    group = str(obj.get("apiVersion", "")).partition("/")[0]
    if group not in ("grove.io", "scheduler.grove.io"):
        return obj, []
    notes: list[str] = []
    found = dict(obj)
    kind = str(obj.get("kind", ""))
    if kind in KINDS:
        found["kind"] = KINDS[kind]
        notes.append(f"kind {kind} is called {KINDS[kind]} now")
    wanted = SCHEDULER_GROUP if found.get("kind") == "PodGang" else GROUP
    if found.get("apiVersion") != wanted:
        notes.append(f"apiVersion {found.get('apiVersion')} is {wanted} now")
        found["apiVersion"] = wanted
    spec = found.get("spec")
    if isinstance(spec, dict):
        if found.get("kind") == "PodCliqueSet":
            found["spec"] = _set_spec(spec, notes)
        elif found.get("kind") == "PodGang":
            found["spec"] = _gang_spec(spec, notes)
    if "status" in found:
        del found["status"]
        notes.append("status is the operator's to write and was left out")
    return found, notes


def _set_spec(spec: Json, notes: list[str]) -> Json:
    template = spec.get("template")
    if not isinstance(template, dict):
        return spec
    template = _constrained(template, "spec.template", notes)
    for field in ("cliques", "podCliqueScalingGroups"):
        if isinstance(template.get(field), list):
            template[field] = [
                _constrained(one, f"spec.template.{field}[{i}]", notes) if isinstance(one, dict) else one
                for i, one in enumerate(template[field])
            ]
    return {**spec, "template": template}


def _constrained(holder: Json, path: str, notes: list[str]) -> Json:
    """The part with its topologyConstraint's packDomain as pack.required."""
    constraint = holder.get("topologyConstraint")
    if not isinstance(constraint, dict) or "packDomain" not in constraint:
        return dict(holder)
    rest = {key: value for key, value in constraint.items() if key != "packDomain"}
    pack = dict(rest.get("pack") or {})
    if pack.get("required") not in (None, constraint["packDomain"]):
        raise Unanswered(f"{path}.topologyConstraint: packDomain and pack.required contradict each other")
    pack["required"] = constraint["packDomain"]
    notes.append(f"{path}.topologyConstraint.packDomain is pack.required now")
    if not rest.get("topologyName"):
        notes.append(f"{path}.topologyConstraint names no topology: add topologyName, here or on the set")
    return {**holder, "topologyConstraint": {**rest, "pack": pack}}


def _gang_spec(spec: Json, notes: list[str]) -> Json:
    found: Json = {}
    for key, value in spec.items():
        if key in DROPPED:
            notes.append(f"spec.{key} has no counterpart and was left out; topologySpreadConstraints of the pods do it")
            continue
        name = GANG_FIELDS.get(key, key)
        if name != key:
            notes.append(f"spec.{key} is spec.{name} now")
        found[name] = [dict(_renamed(one)) for one in value] if name == "podgroups" else value
    return found


def _renamed(group: Json) -> Iterator[tuple[str, Any]]:
    for key, value in group.items():
        yield GANG_GROUP_FIELDS.get(key, key), value
