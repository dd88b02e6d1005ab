"""The annotation that puts GPUs into one multi-node NVLink group: well-formed, switched on, and never changed."""

from __future__ import annotations

from collections.abc import Iterator

from grove.admission.rules.syntax import label_fault
from grove.admission.rules.view import SetView
from grove.api.faults import Fault, forbidden, invalid
from grove.api.labels import MNNVL_GROUP, MNNVL_NONE
from grove.api.meta import Json


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
