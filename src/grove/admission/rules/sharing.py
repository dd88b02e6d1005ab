"""Shared devices: internal claim templates, who shares what, which children a filter names, and NVLink groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from grove.admission.rules.lookups import Known, LookupFailed
from grove.admission.rules.syntax import label_fault, subdomain_fault
from grove.admission.rules.view import TEMPLATE, SetView
from grove.api.faults import Fault, duplicate, forbidden, internal, invalid, not_found, not_supported, required
from grove.api.fields import mapping, sequence, text, texts
from grove.api.labels import MNNVL_GROUP, MNNVL_NONE
from grove.api.meta import Json, Key

SCOPES = ("AllReplicas", "PerReplica")


def sharing_faults(new: SetView) -> Iterator[Fault]:
    templates = [mapping(item) for item in sequence(new.template.get("resourceClaimTemplates"))]
    yield from _template_faults(templates)
    internal = {text(template.get("name")) for template in templates}
    children = {
        "childCliqueNames": {clique.name for clique in new.cliques},
        "childScalingGroupNames": {group.name for group in new.groups},
    }
    needed = "name at least one of childCliqueNames and childScalingGroupNames"
    for path, entry in sharing_entries(TEMPLATE, new.template):
        yield from _filter_faults(path, entry.get("filter"), children, needed)
    yield from _list_faults(TEMPLATE, new.template, internal)
    for clique in new.cliques:
        yield from _list_faults(clique.path, clique.raw, internal)
    for group in new.groups:
        needed = "name at least one of the group's cliques in childCliqueNames"
        members = {"childCliqueNames": group.clique_names}
        for path, entry in sharing_entries(group.path, group.raw):
            yield from _filter_faults(path, entry.get("filter"), members, needed)
        yield from _list_faults(group.path, group.raw, internal)


def sharing_entries(owner_path: str, owner: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The `resourceSharing` entries of an owner, each with its path."""
    for index, entry in enumerate(sequence(owner.get("resourceSharing"))):
        yield f"{owner_path}.resourceSharing[{index}]", mapping(entry)


def foreign_templates(new: SetView, namespace: str) -> dict[str, Key]:
    """ResourceClaimTemplates that a set of this namespace takes from others, by the path that names each.

    Of names that cannot be names, and of the set's own templates, other rules speak.
    """
    internal = {text(mapping(item).get("name")) for item in sequence(new.template.get("resourceClaimTemplates"))}
    owners = [(TEMPLATE, new.template), *((clique.path, clique.raw) for clique in new.cliques)]
    owners += ((group.path, group.raw) for group in new.groups)
    entries = (entry for path, owner in owners for entry in sharing_entries(path, owner))
    named = ((path, Key(text(entry.get("namespace")), text(entry.get("name")))) for path, entry in entries)
    return {
        f"{path}.namespace": key
        for path, key in named
        if key.namespace not in ("", namespace) and key.name not in internal
        if not label_fault(key.namespace) and not subdomain_fault(key.name)
    }


def foreign_template_faults(new: SetView, namespace: str, lookups: Known) -> Iterator[Fault]:
    """The user must be allowed to read what the operator would copy for them. (Upstream copies for every user.)"""
    for path, key in foreign_templates(new, namespace).items():
        try:
            if not lookups.may_read_template(key):
                yield forbidden(path, f"you may not get resourceclaimtemplates/{key.name} in namespace {key.namespace}")
        except LookupFailed as error:
            yield internal(path, f"the API server did not say whether you may read {key}: {error}")


def _template_faults(templates: list[dict[str, Any]]) -> Iterator[Fault]:
    path = f"{TEMPLATE}.resourceClaimTemplates"
    seen: set[str] = set()
    for index, template in enumerate(templates):
        name = text(template.get("name"))
        if not name.strip():
            yield required(f"{path}[{index}].name", "a claim template needs a name")
        elif wrong := subdomain_fault(name):
            yield invalid(f"{path}[{index}].name", name, f"it becomes part of a ResourceClaim's name: {wrong}")
        if name and name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        devices = mapping(mapping(mapping(template.get("templateSpec")).get("spec")).get("devices"))
        if not sequence(devices.get("requests")):
            yield required(
                f"{path}[{index}].templateSpec.spec.devices.requests", "at least one device request is required"
            )


def _list_faults(owner_path: str, owner: dict[str, Any], internal: Collection[str]) -> Iterator[Fault]:
    seen: set[str] = set()
    for path, entry in sharing_entries(owner_path, owner):
        name, namespace, scope = (text(entry.get(key)) for key in ("name", "namespace", "scope"))
        if not name.strip():
            yield required(f"{path}.name", "name of a claim template is required")
        elif wrong := subdomain_fault(name):
            yield invalid(f"{path}.name", name, wrong)
        if name and name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if namespace and name in internal:
            detail = (
                f'must be empty: "{name}" is one of {TEMPLATE}.resourceClaimTemplates, only others have a namespace'
            )
            yield invalid(f"{path}.namespace", namespace, detail)
        elif namespace and (wrong := label_fault(namespace)):
            yield invalid(f"{path}.namespace", namespace, wrong)
        if scope not in SCOPES:
            yield not_supported(f"{path}.scope", scope, SCOPES)


def _filter_faults(path: str, value: Any, known: Mapping[str, Collection[str]], needed: str) -> Iterator[Fault]:
    """A filter names something, in fields that each list children of one kind, and only children there are."""
    if not isinstance(value, dict):
        return
    named = {field: texts(value.get(field)) for field in known}
    if not any(named.values()):
        yield required(f"{path}.filter", needed)
    for field, names in named.items():
        for index, name in enumerate(names):
            if name not in known[field]:
                yield not_found(f"{path}.filter.{field}[{index}]", name)


# The annotation that puts GPUs into one multi-node NVLink group: well-formed, switched on, and never changed.


def mnnvl_faults(new: SetView, *, enabled: bool) -> Iterator[Fault]:
    for _, path, given in _places(new):
        value = given.get(MNNVL_GROUP)
        if value is None or value == MNNVL_NONE:
            continue
        where = f"{path}.{MNNVL_GROUP}"
        if not isinstance(value, str) or not value:
            yield invalid(where, value, f'must be a group name or "{MNNVL_NONE}"')
        elif wrong := label_fault(value):
            yield invalid(where, value, wrong)
        elif not enabled:
            detail = "multi-node NVLink is switched off: an administrator sets network.autoMNNVLEnabled in the"
            yield invalid(where, value, f'{detail} operator configuration; until then only "{MNNVL_NONE}" is allowed')


def mnnvl_change_faults(new: SetView, old: SetView) -> Iterator[Fault]:
    """Faults of an update; cliques and groups are matched by name."""
    before = {key: given for key, _, given in _places(old)}
    for key, path, given in _places(new):
        if key not in before:
            continue
        was, now = before[key].get(MNNVL_GROUP), given.get(MNNVL_GROUP)
        where = f"{path}.{MNNVL_GROUP}"
        if was is None and now is not None:
            yield forbidden(where, "cannot be added to an existing workload: the annotation is immutable")
        elif was is not None and now is None:
            yield forbidden(where, f'cannot be removed (it is "{was}"): the annotation is immutable')
        elif was != now:
            yield invalid(where, now, f'cannot be changed (it is "{was}"): the annotation is immutable')


def _places(new: SetView) -> Iterator[tuple[tuple[str, str], str, Json]]:
    """Whose annotations, where they stand, and what they are."""
    yield ("", ""), "metadata.annotations", new.annotations
    for clique in new.cliques:
        yield ("clique", clique.name), f"{clique.path}.annotations", clique.annotations
    for group in new.groups:
        yield ("group", group.name), f"{group.path}.annotations", group.annotations
