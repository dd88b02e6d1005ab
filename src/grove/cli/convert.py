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
        documents = [document for document in yaml.safe_load_all(file.read()) if document is not None]
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
        objects = [result.obj for result in results]
        printed(formatted(objects if len(objects) != 1 else objects[0], "json", as_is=True))
    else:
        printed("---\n".join(result.comments + formatted(result.obj, "yaml", as_is=True) for result in results))
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

    for conversion in converted(documents):
        if conversion.faults:
            raise Unanswered(f"{conversion.source}: " + "; ".join(map(str, conversion.faults)))
        if conversion.known:
            notes = (
                *(f"Chosen: {note}" for note in conversion.chosen),
                *(f"No counterpart: {note}" for note in conversion.lost),
            )
            yield Result(conversion.source, conversion.obj, notes, commented=True)
        else:
            renamed, changes = converted_object(conversion.obj)
            yield Result(conversion.source, renamed, tuple(changes))


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
        rewritten, missing = to_dialect(document, group)
        lost += (f"{source}: {what}" for what in missing)
        yield Result(source, rewritten)
    if lost:
        raise Unanswered(f"{group} cannot say all of it: " + "; ".join(lost))


def converted_object(obj: Json) -> tuple[Json, list[str]]:
    """The object in today's words, and a note for every change. Objects that are not Grove's come back as they are."""
    group = str(obj.get("apiVersion", "")).partition("/")[0]
    if group not in ("grove.io", "scheduler.grove.io"):
        return obj, []
    notes: list[str] = []
    renamed = dict(obj)
    kind = str(obj.get("kind", ""))
    if kind in KINDS:
        renamed["kind"] = KINDS[kind]
        notes.append(f"kind {kind} is called {KINDS[kind]} now")
    wanted = SCHEDULER_GROUP if renamed.get("kind") == "PodGang" else GROUP
    if renamed.get("apiVersion") != wanted:
        notes.append(f"apiVersion {renamed.get('apiVersion')} is {wanted} now")
        renamed["apiVersion"] = wanted
    spec = renamed.get("spec")
    if isinstance(spec, dict):
        if renamed.get("kind") == "PodCliqueSet":
            renamed["spec"] = _set_spec(spec, notes)
        elif renamed.get("kind") == "PodGang":
            renamed["spec"] = _gang_spec(spec, notes)
    if "status" in renamed:
        del renamed["status"]
        notes.append("status is the operator's to write and was left out")
    return renamed, notes


def _set_spec(spec: Json, notes: list[str]) -> Json:
    template = spec.get("template")
    if not isinstance(template, dict):
        return spec
    template = _constrained(template, "spec.template", notes)
    for field in ("cliques", "podCliqueScalingGroups"):
        if isinstance(template.get(field), list):
            template[field] = [
                _constrained(part, f"spec.template.{field}[{i}]", notes) if isinstance(part, dict) else part
                for i, part in enumerate(template[field])
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
    renamed: Json = {}
    for key, value in spec.items():
        name = GANG_FIELDS.get(key, key)
        if name != key:
            notes.append(f"spec.{key} is spec.{name} now")
        renamed[name] = (
            [_renamed(group) for group in value] if name == "podgroups" and isinstance(value, list) else value
        )
    return renamed


def _renamed(group: Any) -> Any:
    if not isinstance(group, dict):
        return group
    return {GANG_GROUP_FIELDS.get(key, key): value for key, value in group.items()}
