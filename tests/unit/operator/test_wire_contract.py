"""The wire contract over random sets: every object a set unfolds into, derived a second time from its tables.

The tables are spelled out here in the plainest way, without a single function of `grove`: names, owners, labels, gangs,
start order, claims, topology. Sets are drawn small but of any shape: hyphens and digits in names, groups of several
cliques, minimums anywhere, constraints and sharing at all levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.manifests import clique, group, pcs
from tests.support.puregraph import PureGraph

from grove.api.meta import Json
from grove.api.topology import ClusterTopologyBinding
from grove.backends.grove import GroveBackend

LEVELS = {"zone": "topology.kubernetes.io/zone", "rack": "example.com/rack", "host": "kubernetes.io/hostname"}
BINDING = msgspec.convert(
    {"metadata": {"name": "tree"}, "spec": {"levels": [{"domain": d, "key": k} for d, k in LEVELS.items()]}},
    ClusterTopologyBinding,
)
ORDERS = ("CliqueStartupTypeAnyOrder", "CliqueStartupTypeInOrder", "CliqueStartupTypeExplicit")
DEVICES: Json = {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": "x"}}]}}
NAMES = ("a", "b", "w-1", "0", "prefill-w", "w", "p-0-w", "x9")


@st.composite
def constraints(draw: st.DrawFn) -> Json | None:
    pack = {
        field: domain
        for field in ("required", "preferred")
        if (domain := draw(st.sampled_from((None, "zone", "rack", "host", "numa"))))
    }
    return {"topologyName": "tree", "pack": pack} if pack else None


@st.composite
def sharing(draw: st.DrawFn, **filters: tuple[str, ...]) -> list[Json]:
    found = []
    for name in draw(st.lists(st.sampled_from(("gpu", "nic")), unique=True, max_size=2)):
        entry: Json = {"name": name, "scope": draw(st.sampled_from(("AllReplicas", "PerReplica")))}
        picked = {
            field: names for field, of in filters.items() if (names := draw(st.lists(st.sampled_from(of), max_size=2)))
        }
        found.append({**entry, "filter": picked} if picked else entry)
    return found


@st.composite
def sets(draw: st.DrawFn) -> Json:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=5))
    cliques = []
    for number, name in enumerate(names):
        replicas = draw(st.integers(1, 3))
        cliques.append(
            clique(
                name,
                replicas,
                min_available=draw(st.integers(1, replicas)),
                starts_after=draw(st.lists(st.sampled_from(names[:number]), unique=True)) if number else (),
                labels=draw(st.sampled_from((None, {"team": "x", "grove.io/podgang": "mine"}))),
                annotations=draw(st.sampled_from((None, {"note": "y", "grove.io/topology-name": "no"}))),
                topology=draw(constraints()),
                sharing=draw(sharing()),
            )
        )
    members = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
    cut = draw(st.integers(0, len(members)))
    groups = []
    for name, part in (("g", members[:cut]), ("g-0", members[cut:])):
        if part:
            replicas = draw(st.integers(1, 3))
            extra = {"topologyConstraint": t} if (t := draw(constraints())) else {}
            extra |= {"resourceSharing": s} if (s := draw(sharing(childCliqueNames=tuple(part)))) else {}
            bounds = draw(st.sampled_from((None, {"minReplicas": replicas, "maxReplicas": 7})))
            minimum = draw(st.integers(1, replicas))
            groups.append(group(name, *part, replicas=replicas, min_available=minimum, scale=bounds, **extra))
    whole: Json = {"topologyConstraint": t} if (t := draw(constraints())) else {}
    by_group = {"childScalingGroupNames": tuple(one["name"] for one in groups)} if groups else {}
    whole["resourceSharing"] = draw(sharing(childCliqueNames=tuple(names), **by_group))
    return pcs(
        draw(st.sampled_from(("demo", "a-0", "llm-405b"))),
        *cliques,
        groups=groups,
        replicas=draw(st.integers(0, 2)),
        startup=draw(st.sampled_from(ORDERS)),
        metadata={"labels": {"owner": "me", "grove.io/x": "hidden"}, "annotations": {"why": "test"}},
        resourceClaimTemplates=[{"name": name, "templateSpec": {"spec": DEVICES}} for name in ("gpu", "nic")],
        **whole,
    )


class Table:
    """What the contract's tables say about one set: facts by kind and name."""

    def __init__(self, manifest: Json) -> None:
        self.name, self.template = manifest["metadata"]["name"], manifest["spec"]["template"]
        self.cliques = {one["name"]: one for one in self.template["cliques"]}
        self.groups = {one["name"]: one for one in self.template.get("podCliqueScalingGroups", ())}
        self.group_of = {member: one for one in self.groups.values() for member in one["cliqueNames"]}
        self.defaults = {"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": self.name}
        self.facts: dict[tuple[str, str], Json] = {}
        for index in range(manifest["spec"]["replicas"]):
            self._replica(index)
        self._claims_of(self.name, self.template["resourceSharing"], range(manifest["spec"]["replicas"]), self.name)

    def _replica(self, index: int) -> None:
        base = f"{self.name}-{index}"
        self.facts["Service", base] = {"owner": self.name, "selector": {**self.defaults, REPLICA: str(index)}}
        gangs: dict[str, list[tuple[str, str]]] = {base: []}
        for name in self.cliques:
            if name not in self.group_of:
                gangs[base].append((f"{base}-{name}", name))
                self._clique(index, name, f"{base}-{name}", self.name, base, None)
        for group_name, config in self.groups.items():
            fqn = f"{base}-{group_name}"
            self.facts["PodCliqueScalingGroup", fqn] = {
                "owner": self.name,
                "replicas": config["replicas"],
                "minimum": config["minAvailable"],
            }
            self._claims_of(fqn, config.get("resourceSharing", ()), range(config["replicas"]), fqn)
            if "scaleConfig" in config:
                self.facts["HorizontalPodAutoscaler", fqn] = {"owner": self.name, "max": 7, "min": config["replicas"]}
            for group_replica in range(config["replicas"]):
                over = group_replica - config["minAvailable"]
                gang = base if over < 0 else f"{fqn}-{over}"
                for name in config["cliqueNames"]:
                    gangs.setdefault(gang, []).append((f"{fqn}-{group_replica}-{name}", name))
                    self._clique(index, name, f"{fqn}-{group_replica}-{name}", fqn, gang, group_replica)
        for gang, members in gangs.items():
            self._gang(index, gang, members)

    def _clique(self, index: int, name: str, fqn: str, owner: str, gang: str, group_replica: int | None) -> None:
        one, base = self.cliques[name], f"{self.name}-{index}"
        config = self.group_of.get(name)
        labels = {
            **one.get("labels", {}),
            **self.defaults,
            "app.kubernetes.io/name": fqn,
            REPLICA: str(index),
            "app.kubernetes.io/component": "pcs-podclique" if group_replica is None else "pcsg-podclique",
            "grove.io/podgang": gang,
        }
        if group_replica is not None:
            labels |= {"grove.io/podcliquescalinggroup": owner, GROUP_REPLICA_LABEL: str(group_replica)}
        if gang != base:
            labels["grove.io/base-podgang"] = base
        annotations = {key: text for key, text in one.get("annotations", {}).items() if key != "grove.io/topology-name"}
        parents = list(self._parents(index, name, group_replica, gang))
        self.facts["PodClique", fqn] = {
            "owner": owner,
            "labels": labels,
            "annotations": annotations,
            "parents": [parent for parent, _ in parents],
        }
        self._claims_of(fqn, one.get("resourceSharing", ()), range(one["spec"]["replicas"]), fqn)
        for pod in range(one["spec"]["replicas"]):
            claims = [*self._used(self.name, self._for(name, config), index)]
            if config is not None:
                of_group = [
                    entry
                    for entry in config.get("resourceSharing", ())
                    if "filter" not in entry or name in entry["filter"].get("childCliqueNames", ())
                ]
                claims += self._used(owner, of_group, group_replica)
            claims += self._used(fqn, one.get("resourceSharing", ()), pod)
            self.facts["Pod", f"{fqn}-{pod}"] = {
                "owner": fqn,
                "subdomain": base,
                "claims": claims,
                "annotations": annotations,
                "waits": [f"--podcliques={parent}:{count}" for parent, count in parents],
                "labels": {
                    **labels,
                    "grove.io/podclique": fqn,
                    "grove.io/podclique-pod-index": str(pod),
                    "grove.io/clique-name": name,
                },
            }

    def _parents(self, index: int, name: str, group_replica: int | None, gang: str) -> Iterator[tuple[str, int]]:
        base = f"{self.name}-{index}"
        for parent in self._waits_for(name):
            need = self.cliques[parent]["spec"]["minAvailable"]
            config = self.group_of.get(parent)
            if gang != base:  # a scaled gang has only its own replica
                if config is not None and config is self.group_of[name]:
                    yield f"{base}-{config['name']}-{group_replica}-{parent}", need
            elif config is None:
                yield f"{base}-{parent}", need
            else:
                for at in range(config["minAvailable"]):
                    yield f"{base}-{config['name']}-{at}-{parent}", need

    def _waits_for(self, name: str) -> list[str]:
        order, names = self.template["cliqueStartupType"], list(self.cliques)
        if order == ORDERS[1]:
            return names[: names.index(name)][-1:]
        return list(self.cliques[name]["spec"].get("startsAfter", [])) if order == ORDERS[2] else []

    def _gang(self, index: int, gang: str, members: list[tuple[str, str]]) -> None:
        base = f"{self.name}-{index}"
        config = self.group_of.get(members[0][1]) if gang != base else None
        own = self.template.get("topologyConstraint")
        if config is not None and "topologyConstraint" in config:
            own = config["topologyConstraint"]
        parts = [
            (f"{base}-{one['name']}-{at}", one)
            for one in self.groups.values()
            if gang == base and "topologyConstraint" in one
            for at in range(one["minAvailable"])
        ]
        fact: Json = {
            "owner": self.name,
            "groups": [
                (
                    fqn,
                    self.cliques[name]["spec"]["minAvailable"],
                    self.cliques[name]["spec"]["replicas"],
                    keys(self.cliques[name].get("topologyConstraint")),
                )
                for fqn, name in members
            ],
            "constraint": keys(own),
            "parts": [
                (name, [f"{name}-{member}" for member in one["cliqueNames"]], keys(one["topologyConstraint"]))
                for name, one in parts
            ],
            "labels": {
                **self.defaults,
                "owner": "me",
                "app.kubernetes.io/component": "podgang",
                "grove.io/scheduler-name": "grove-scheduler",
            },
        }
        said = fact["constraint"] or any(one[-1] for one in (*fact["groups"], *fact["parts"]))
        links = ",".join(f"{name}={parent}" for name in self.cliques for parent in self._waits_for(name))
        fact["annotations"] = {
            "why": "test",
            **({"grove.io/topology-name": "tree"} if said else {}),
            **({"grove.io/network-affinity": links} if links else {}),
        }
        self.facts["PodGang", gang] = fact

    def _for(self, name: str, config: Json | None) -> list[Json]:
        def matches(entry: Json) -> bool:
            picked = entry.get("filter")
            by_group = config is not None and picked and config["name"] in picked.get("childScalingGroupNames", ())
            return picked is None or name in picked.get("childCliqueNames", ()) or bool(by_group)

        return [entry for entry in self.template["resourceSharing"] if matches(entry)]

    def _used(self, owner: str, entries: Any, index: int | None) -> list[str]:
        common = [f"{owner}-all-{one['name']}" for one in entries if one["scope"] == "AllReplicas"]
        return common + [f"{owner}-{index}-{one['name']}" for one in entries if one["scope"] == "PerReplica"]

    def _claims_of(self, prefix: str, entries: Any, indexes: range, owner: str) -> None:
        for one in entries:
            places = ["all"] if one["scope"] == "AllReplicas" else list(indexes)
            for place in places:
                self.facts["ResourceClaim", f"{prefix}-{place}-{one['name']}"] = {"owner": owner}


REPLICA, GROUP_REPLICA_LABEL = "grove.io/podcliqueset-replica-index", "grove.io/podcliquescalinggroup-replica-index"


def keys(constraint: Json | None) -> Json | None:
    """A constraint in node label keys; a domain that is no level is dropped."""
    pack = (constraint or {}).get("pack", {})
    return {field: LEVELS[domain] for field, domain in pack.items() if domain in LEVELS} or None


def seen(world: PureGraph) -> dict[tuple[str, str], Json]:
    """The same facts, read from what was made."""
    found: dict[tuple[str, str], Json] = {}
    for obj in world.children():
        kind, meta, spec = obj["kind"], obj["metadata"], obj.get("spec", {})
        (owner,) = meta["ownerReferences"]
        fact: Json = {"owner": owner["name"]}
        name, labels = meta["name"], dict(meta["labels"])
        has_hash = bool(labels.pop("grove.io/pod-template-hash", ""))
        has_revision = bool(labels.pop("grove.io/revision", ""))
        if kind in ("PodClique", "Pod"):
            assert has_hash
            assert has_revision
            fact |= {"labels": labels, "annotations": meta.get("annotations", {})}
        if kind == "Service":
            fact["selector"] = spec["selector"]
        elif kind == "PodCliqueScalingGroup":
            fact |= {"replicas": spec["replicas"], "minimum": spec["minAvailable"]}
        elif kind == "HorizontalPodAutoscaler":
            assert (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]) == ("PodCliqueScalingGroup", name)
            fact |= {"min": spec["minReplicas"], "max": spec["maxReplicas"]}
        elif kind == "PodClique":
            fact["parents"] = spec.get("startsAfter", [])
        elif kind == "Pod":
            name = spec["hostname"]
            waits = [one for one in spec.get("initContainers", ()) if one["name"] == "grove-initc"]
            fact |= {
                "subdomain": spec["subdomain"],
                "claims": [one["resourceClaimName"] for one in spec.get("resourceClaims", ())],
                "waits": [arg for one in waits for arg in one["args"]],
            }
        elif kind == "PodGang":
            fact |= {
                "groups": [
                    (one["name"], one["minReplicas"], len(one["podReferences"]), packed(one))
                    for one in spec["podgroups"]
                ],
                "constraint": packed(spec),
                "parts": [
                    (one["name"], one["podGroupNames"], packed(one))
                    for one in spec.get("topologyConstraintGroupConfigs", ())
                ],
                "labels": labels,
                "annotations": meta.get("annotations", {}),
            }
        if kind not in ("ServiceAccount", "Role", "RoleBinding", "Secret"):
            found[kind, name] = fact
    return found


def packed(holder: Json) -> Json | None:
    found: Json | None = holder.get("topologyConstraint", {}).get("packConstraint")
    return found


@settings(max_examples=150)
@given(sets())
def test_a_set_unfolds_into_exactly_what_the_tables_say(manifest: Json) -> None:
    world = PureGraph(manifest, GroveBackend(), BINDING)
    world.settle()
    assert seen(world) == Table(manifest).facts
