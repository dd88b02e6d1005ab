"""Names: a set, a clique and a scaling group become parts of hostnames, Services and pod names, so they have to fit.

Upstream admits DNS subdomains (dots, leading digits) that the API server refuses later, when the Service or the pod is
made. Here they are refused at once. Lengths are counted in bytes, as there.
"""

from __future__ import annotations

from collections.abc import Iterator

from grove.admission.rules.syntax import annotation_faults, label_1035_fault, label_fault, label_faults
from grove.admission.rules.view import TEMPLATE, SetView
from grove.api.faults import Fault, duplicate, invalid, required
from grove.api.names import MAX_COMBINED_LENGTH


def metadata_faults(new: SetView, *, creating: bool) -> Iterator[Fault]:
    if not new.name:
        yield required("metadata.name", "name or generateName is required")
    else:
        # A set that runs already has its Services, whatever its first character is: only creation is strict.
        wrong = label_fault(new.name) or (label_1035_fault(new.name) if creating else "")
        if wrong:
            yield invalid("metadata.name", new.name, f"it becomes the name of Services and part of hostnames: {wrong}")
    if not new.namespace:
        yield required("metadata.namespace")
    yield from label_faults("metadata.labels", new.labels)
    yield from annotation_faults("metadata.annotations", new.annotations)


def clique_name_faults(new: SetView) -> Iterator[Fault]:
    for clique in new.cliques:
        path = f"{clique.path}.name"
        if not clique.name.strip():
            yield required(path, "a clique needs a name")
            continue
        if wrong := label_fault(clique.name):
            yield invalid(path, clique.name, f"it becomes part of hostnames: {wrong}")
        if new.group_of(clique.name) is None:
            yield from _budget_faults(
                {path: clique.name, "metadata.name": new.name}, [f'clique "{clique.name}"'], new.name
            )
    yield from _repeated(f"{TEMPLATE}.cliques.roleName", [clique.role_name for clique in new.cliques], "cliques")


def group_name_faults(new: SetView) -> Iterator[Fault]:
    known = {clique.name for clique in new.cliques}
    for group in new.groups:
        path = f"{group.path}.name"
        if not group.name.strip():
            yield required(path, "a scaling group needs a name")
        elif wrong := label_fault(group.name):
            yield invalid(path, group.name, f"it becomes part of hostnames: {wrong}")
        for index, member in enumerate(group.clique_names):
            if member in known:
                names = {f"{group.path}.cliqueNames[{index}]": member, path: group.name, "metadata.name": new.name}
                others = [f'scaling group "{group.name}"', f'clique "{member}"']
                yield from _budget_faults(names, others, new.name)
    yield from _repeated(
        f"{TEMPLATE}.podCliqueScalingGroups.name", [g.name for g in new.groups], "podCliqueScalingGroups"
    )


def _budget_faults(names: dict[str, str], parts: list[str], set_name: str) -> Iterator[Fault]:
    length = sum(len(name.encode("utf-8", "replace")) for name in names.values())
    if length <= MAX_COMBINED_LENGTH:
        return
    shorten = " or ".join([f'PodCliqueSet "{set_name}"', *parts])
    detail = (
        f"combined length of the names is {length}, at most {MAX_COMBINED_LENGTH} are allowed so that pod names stay "
        f"within 63 characters: shorten {shorten}"
    )
    for path, name in names.items():
        yield invalid(path, name, detail)


def _repeated(path: str, names: list[str], list_name: str) -> Iterator[Fault]:
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if name:
            places.setdefault(name, []).append(index)
    for name, indices in places.items():
        if len(indices) > 1:
            yield duplicate(path, name, "used by " + " and ".join(f"{list_name}[{i}]" for i in indices))
