"""`convert`: manifests in older spellings and other APIs, rewritten as today's. Reads and prints YAML; asks no cluster.

Kinds were renamed (PodGangSet, ClusterTopology), fields moved (packDomain, network pack groups). What has no place
today is left out, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from grove.answers.answer import Unanswered

Json = dict[str, Any]

GROUP, SCHEDULER_GROUP = "grove.io/v1alpha1", "scheduler.grove.io/v1alpha1"
KINDS = {"PodGangSet": "PodCliqueSet", "ClusterTopology": "ClusterTopologyBinding"}
GANG_FIELDS = {
    "podGroups": "podgroups",
    "PodGroups": "podgroups",
    "networkPackGroupConfigs": "topologyConstraintGroupConfigs",
    "NetworkPackGroupConfigs": "topologyConstraintGroupConfigs",
    "SpreadConstraints": "spreadConstraints",
}
GANG_GROUP_FIELDS = {"MinReplicas": "minReplicas", "PodReferences": "podReferences", "Name": "name"}


@click.command()
@click.argument("file", type=click.File("r"), default="-")
@click.option(
    "--to",
    "group",
    type=click.Choice(["grove.dynamo.ai", "grove.ai"]),
    help="Convert PodCliqueSets to this API group instead, if no field is lost.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Format of the result.")
def convert(file: Any, group: str | None, output: str) -> int:
    """Rewrite a file (or stdin) as PodCliqueSets of grove.io/v1alpha1.

    Reads older spellings, grove.dynamo.ai/v1 and grove.ai/v1alpha1, LeaderWorkerSets, Volcano Jobs, and Deployments and
    StatefulSets whose pods name a PodGroup. Comments say what was chosen and what has no counterpart; stderr does too.
    """
    import yaml

    from grove.cli.access import formatted
    from grove.cli.terminal import printed

    try:
        documents = [one for one in yaml.safe_load_all(file.read()) if one is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        from grove.demo.scenario import yaml_fault

        raise Unanswered(f"{file.name}: not YAML: {yaml_fault(error)}") from error
    if any(not isinstance(document, dict) for document in documents):
        raise Unanswered(f"{file.name}: holds something that is no Kubernetes object")
    results = list(_spoken(documents, group) if group else _as_sets(documents))
    if not documents:
        raise Unanswered(f"{file.name}: there is nothing in it to convert")
    if not results:
        raise Unanswered("rules alone become nothing: give them in one file with the PodGangSets they are about")
    for result in results:
        for note in result.notes:
            click.echo(f"{result.source}: {note}", err=True)
    if output == "json":
        objects = [one.obj for one in results]
        printed(formatted(objects if len(objects) != 1 else objects[0], "json", as_is=True))
    else:
        printed("---\n".join(one.comments + formatted(one.obj, "yaml", as_is=True) for one in results))
    return 0


class Result(NamedTuple):
    """One document of the result, and what its reader should know."""

    source: str
    obj: Json
    notes: tuple[str, ...] = ()
    commented: bool = False
    """Whether the notes also stand in the result, for later readers."""

    @property
    def comments(self) -> str:
        return "".join(f"# {note}\n" for note in (f"From {self.source}.", *self.notes)) if self.commented else ""


def _as_sets(documents: Sequence[Json]) -> Iterator[Result]:
    from grove.dialects.moving.converting import converted

    for one in converted(documents):
        if one.faults:
            raise Unanswered(f"{one.source}: " + "; ".join(map(str, one.faults)))
        if one.known:
            notes = (*(f"Chosen: {note}" for note in one.chosen), *(f"No counterpart: {note}" for note in one.lost))
            yield Result(one.source, one.obj, notes, commented=True)
        else:
            found, changes = converted_object(one.obj)
            yield Result(one.source, found, tuple(changes))


def _spoken(documents: Sequence[Json], group: str) -> Iterator[Result]:
    """PodCliqueSets in the words of a dialect. If fields would be lost, the conversion stops and lists all of them."""
    from grove.dialects.moving.converting import source_of
    from grove.dialects.reverse import to_dialect

    lost: list[str] = []
    for document in documents:
        source = source_of(document)
        if document.get("kind") != "PodCliqueSet" or document.get("apiVersion") != GROUP:
            yield Result(source, document)
            continue
        found, missing = to_dialect(document, group)
        lost += (f"{source}: {what}" for what in missing)
        yield Result(source, found)
    if lost:
        raise Unanswered(f"{group} cannot say all of it: " + "; ".join(lost))


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
    pack = rest.get("pack") or {}
    if not isinstance(pack, dict):
        raise Unanswered(f"{path}.topologyConstraint.pack is no object")
    if pack.get("required") not in (None, constraint["packDomain"]):
        raise Unanswered(f"{path}.topologyConstraint: packDomain and pack.required contradict each other")
    pack = {**pack, "required": constraint["packDomain"]}
    notes.append(f"{path}.topologyConstraint.packDomain is pack.required now")
    if not rest.get("topologyName"):
        notes.append(f"{path}.topologyConstraint names no topology: add topologyName, here or on the set")
    return {**holder, "topologyConstraint": {**rest, "pack": pack}}


def _gang_spec(spec: Json, notes: list[str]) -> Json:
    found: Json = {}
    for key, value in spec.items():
        name = GANG_FIELDS.get(key, key)
        if name != key:
            notes.append(f"spec.{key} is spec.{name} now")
        found[name] = [_renamed(one) for one in value] if name == "podgroups" and isinstance(value, list) else value
    return found


def _renamed(group: Any) -> Any:
    if not isinstance(group, dict):
        return group
    return {GANG_GROUP_FIELDS.get(key, key): value for key, value in group.items()}
