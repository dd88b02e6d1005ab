"""What an existing PodCliqueSet may not change, with the two ways out of the legacy `packDomain`.

Cliques and scaling groups are matched by name; a fault's path has their index in the new manifest. Lists that are
absent and lists that are empty are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from grove.admission.rules.lookups import Known
from grove.admission.rules.topology import SET_NAME_PATH, Resolution, resolve, topology_faults
from grove.admission.rules.view import TEMPLATE, CliqueView, Constraint, GroupView, SetView
from grove.api.faults import Fault, FaultType, forbidden, internal, invalid, shown
from grove.api.podcliqueset import EXPLICIT, IN_ORDER

IMMUTABLE = "field is immutable"
Named = TypeVar("Named", CliqueView, GroupView)


def update_faults(new: SetView, old: SetView, *, topology_enabled: bool, lookups: Known) -> Iterator[Fault]:
    yield from _clique_faults(new, old)
    if new.startup_type != old.startup_type:
        yield _changed(f"{TEMPLATE}.cliqueStartupType", old.startup_type, new.startup_type)
    yield from _group_faults(new, old)
    for field in ("resourceClaimTemplates", "resourceSharing"):
        if _differ(old.template.get(field), new.template.get(field)):
            yield invalid(f"{TEMPLATE}.{field}", new.template.get(field), IMMUTABLE)
    yield from _constraint_faults(new, old, topology_enabled=topology_enabled, lookups=lookups)


def _clique_faults(new: SetView, old: SetView) -> Iterator[Fault]:
    path = f"{TEMPLATE}.cliques"
    if len(new.cliques) != len(old.cliques):
        yield forbidden(path, _composition("cliques", len(old.cliques), len(new.cliques)))
    before = {clique.name for clique in old.cliques}
    for clique in new.cliques:
        if clique.name not in before:
            yield forbidden(f"{clique.path}.name", f'clique "{clique.name}" is new: the names of cliques cannot change')
    if old.startup_type in (IN_ORDER, EXPLICIT):
        was, now = [c.name for c in old.cliques], [c.name for c in new.cliques]
        if was != now and sorted(was) == sorted(now):
            detail = f"the order of cliques cannot change with start order {old.startup_type}, it was: {', '.join(was)}"
            yield invalid(path, now, detail)
    for clique, stored in _paired(new.cliques, old.cliques):
        yield from _same_clique_faults(clique, stored)


def _same_clique_faults(new: CliqueView, old: CliqueView) -> Iterator[Fault]:
    of = f'of clique "{new.name}"'
    for field, was, now in (
        ("roleName", old.role_name, new.role_name),
        ("minAvailable", old.min_available, new.min_available),
        ("startsAfter", list(old.starts_after), list(new.starts_after)),
        ("podSpec.schedulerName", old.scheduler_name, new.scheduler_name),
    ):
        if was != now:
            yield _changed(f"{new.path}.spec.{field}", was, now, of)
    if _differ(old.raw.get("resourceSharing"), new.raw.get("resourceSharing")):
        yield invalid(f"{new.path}.resourceSharing", new.raw.get("resourceSharing"), IMMUTABLE)


def _group_faults(new: SetView, old: SetView) -> Iterator[Fault]:
    path = f"{TEMPLATE}.podCliqueScalingGroups"
    if len(new.groups) != len(old.groups):
        yield forbidden(path, _composition("scaling groups", len(old.groups), len(new.groups)))
        return
    before = {group.name for group in old.groups}
    for group in new.groups:
        if group.name not in before:
            yield forbidden(
                f"{group.path}.name", f'scaling group "{group.name}" is new: the names of scaling groups cannot change'
            )
    for group, was in _paired(new.groups, old.groups):
        of = f'of scaling group "{group.name}"'
        if group.clique_names != was.clique_names:
            yield _changed(f"{group.path}.cliqueNames", list(was.clique_names), list(group.clique_names), of)
        if group.min_available != was.min_available:
            yield _changed(f"{group.path}.minAvailable", was.min_available, group.min_available, of)
        if _differ(was.raw.get("resourceSharing"), group.raw.get("resourceSharing")):
            yield invalid(f"{group.path}.resourceSharing", group.raw.get("resourceSharing"), f"{IMMUTABLE} ({of})")


def _constraint_faults(new: SetView, old: SetView, *, topology_enabled: bool, lookups: Known) -> Iterator[Fault]:
    legacy = any(constraint.pack_domain and not constraint.topology_name for constraint in old.constraints)
    before = resolve(old) if legacy else Resolution("")
    repairing = legacy and bool(before.faults)
    if any(fault.type is not FaultType.REQUIRED for fault in before.faults):
        yield internal(SET_NAME_PATH, "the stored topology constraints contradict each other: recreate the workload")
        return
    faults = list(_pair_faults(new, old, repairing=repairing))
    yield from faults
    if repairing and not faults and new.constraints != old.constraints:
        yield from topology_faults(new, enabled=topology_enabled, lookups=lookups)


def _pair_faults(new: SetView, old: SetView, *, repairing: bool) -> Iterator[Fault]:
    path = f"{TEMPLATE}.topologyConstraint"
    if not _is_allowed(old.constraint, new.constraint, repairing=repairing):
        was, now = (constraint.topology_name if constraint else "" for constraint in (old.constraint, new.constraint))
        if was != now:
            yield forbidden(
                f"{path}.topologyName", f'the topology of an existing workload cannot change ("{was}" to "{now}")'
            )
        else:
            yield forbidden(path, _what_changed(old.constraint, new.constraint))
    owners: list[tuple[CliqueView | GroupView, Constraint | None]] = []
    owners += [(clique, stored.constraint) for clique, stored in _paired(new.cliques, old.cliques)]
    owners += [(group, stored.constraint) for group, stored in _paired(new.groups, old.groups)]
    for owner, was_constraint in owners:
        if not _is_allowed(was_constraint, owner.constraint, repairing=repairing):
            yield forbidden(f"{owner.path}.topologyConstraint", _what_changed(was_constraint, owner.constraint))


def _is_allowed(old: Constraint | None, new: Constraint | None, *, repairing: bool) -> bool:
    if old is None or new is None:
        return old is new
    same_name = old.topology_name == new.topology_name
    if old.preferred == new.preferred and same_name:
        if (old.required, old.pack_domain) == (new.required, new.pack_domain):
            return True
        if old.pack_domain and not new.pack_domain and new.required == old.pack_domain:
            return True  # the move of packDomain to pack.required
    gained = not old.topology_name and bool(new.topology_name)
    kept = (old.pack_domain, old.required, old.preferred) == (new.pack_domain, new.required, new.preferred)
    return repairing and gained and kept and bool(old.pack_domain)


def _what_changed(old: Constraint | None, new: Constraint | None) -> str:
    if old is None:
        return "a topology constraint cannot be added to an existing workload"
    if new is None:
        return "a topology constraint cannot be removed from an existing workload"
    fields = {
        "topologyName": (old.topology_name, new.topology_name),
        "packDomain": (old.pack_domain, new.pack_domain),
        "pack.required": (old.required, new.required),
        "pack.preferred": (old.preferred, new.preferred),
    }
    changes = ", ".join(f'{name} "{was}" to "{now}"' for name, (was, now) in fields.items() if was != now)
    return f"a topology constraint of an existing workload cannot change ({changes or 'pack'})"


def _paired(new: Sequence[Named], old: Sequence[Named]) -> Iterator[tuple[Named, Named]]:
    """Parts with the same name; where a name is (wrongly) repeated, the first with the first and so on."""
    stored: dict[str, list[Named]] = {}
    for clique in reversed(old):
        stored.setdefault(clique.name, []).append(clique)
    for clique in new:
        if stored.get(clique.name):
            yield clique, stored[clique.name].pop()


def _composition(what: str, were: int, are: int) -> str:
    return f"{what} cannot be added to or removed from an existing workload (there were {were}, now {are})"


def _changed(path: str, was: Any, now: Any, of: str = "") -> Fault:
    return invalid(path, now, f"{IMMUTABLE}, the value{of and ' ' + of} is {shown(was)}")


def _differ(old: Any, new: Any) -> bool:
    """Semantic inequality: null, absent, empty list and empty object are the same."""
    return bool((_bare(old) or None) != (_bare(new) or None))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: bare for key, item in value.items() if (bare := _bare(item)) not in (None, [], {})}
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return value
