"""Volumes that are there already, promised to claims of pods on their way: each to one claim, until that is bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grove.api.core import PersistentVolume, PersistentVolumeClaim
from grove.api.meta import Key
from grove.kube.client import Client
from grove.kube.store import Store
from grove.scheduler.model.facts import NodeTerms
from grove.scheduler.model.seams import Refusal
from grove.scheduler.volumes.volume_claims import SELECTED_NODE, VolumeClaims, makes_at, matching_volumes, reach
from grove.scheduler.volumes.volume_matching import share_out


class VolumePromises:
    def __init__(
        self,
        known: VolumeClaims,
        meets: Callable[[NodeTerms, str], bool],
        client: Client,
        volumes: Store[PersistentVolume],
    ) -> None:
        """`meets` says whether a node does."""
        self._known, self._meets, self._client, self._volumes = known, meets, client, volumes
        self._of: dict[str, dict[Key, str]] = {}
        """Names of volumes by claim, for each pod by uid."""
        self._read: dict[Key | None, list[tuple[PersistentVolume, tuple[NodeTerms, ...]]]] | None = None
        """Volumes by the claim that they name, None for those that are free, with where each can be reached."""

    def promise(self, node: str, open_claims: Mapping[str, Sequence[PersistentVolumeClaim]]) -> Refusal | None:
        """Sets volumes aside for claims without one, by uid of the pods; refuses if one is needed and there is none."""
        users: dict[Key, list[str]] = {}
        suits: dict[Key, list[str]] = {}
        needed: list[Key] = []
        promised = self._promised()
        others = {volume: key for key, volume in promised.items()}
        for uid, claim in ((uid, claim) for uid, claims in open_claims.items() for claim in claims):
            key = claim.metadata.key
            users.setdefault(key, []).append(uid)
            if key not in suits:
                names = [volume.metadata.name for volume in self._choice(claim, node)]
                suits[key] = [
                    name for name in names if promised.get(key, name) == name and others.get(name, key) == key
                ]
                if key in promised or not self._is_made_at(claim, node):
                    needed.append(key)
        given, lacking = share_out(suits, needed)
        if lacking:
            some = ", ".join(f'"{key.name}"' for key in sorted(lacking)[:3])
            together = tuple(dict.fromkeys(uid for key in sorted(lacking) for uid in users[key]))
            return Refusal(node, f"node {node} has not the free volumes for persistentvolumeclaims {some}", together)
        for key, name in given.items():
            for uid in users[key]:
                self._of.setdefault(uid, {})[key] = name
        return None

    def release(self, uid: str) -> bool:
        """Ends the promise to the pod. True if there was one."""
        return bool(self._of.pop(uid, None))

    async def tell(self, claim: PersistentVolumeClaim, node: str) -> str:
        """Gives a claim the volume that it was promised, or has one made on the node; the trouble there was, if any."""
        meta, name = claim.metadata, self._promised().get(claim.metadata.key)
        volume = next(
            (
                persistent_volume
                for persistent_volume in self._choice(claim, node)
                if persistent_volume.metadata.name == name
            ),
            None,
        )
        if volume is not None:
            await self._give(volume, claim)
        elif name is None and self._is_made_at(claim, node):
            patch = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            await self._client.patch(PersistentVolumeClaim, meta.name, patch, meta.namespace)
        else:
            return f"the volume that claim {meta.key} was to have is taken"
        return ""

    async def _give(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Writes the claim into the volume; Kubernetes' volume controller does the rest. Conflicts if it is taken."""
        meta = claim.metadata
        if volume.spec.claim_ref is not None:
            return
        ours = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        patch = {"metadata": {"resourceVersion": volume.metadata.resource_version}, "spec": {"claimRef": ours}}
        self._volumes.wrote(await self._client.patch(PersistentVolume, volume.metadata.name, patch))
        self.volumes_changed()

    def _promised(self) -> dict[Key, str]:
        return {key: name for volumes in self._of.values() for key, name in volumes.items()}

    def volumes_changed(self) -> None:
        self._read = None

    def _choice(self, claim: PersistentVolumeClaim, node: str) -> list[PersistentVolume]:
        """Volumes that suit a claim and can be reached from a node, the smallest first; if one names it, that alone."""
        if self._read is None:
            self._read = {}
            for persistent_volume in self._volumes.list():
                ref = persistent_volume.spec.claim_ref
                key = Key(str(ref.get("namespace", "")), str(ref.get("name", ""))) if ref is not None else None
                self._read.setdefault(key, []).append((persistent_volume, reach(persistent_volume)))
        named = [entry for entry in self._read.get(claim.metadata.key, []) if matching_volumes(claim, entry[:1])]
        known = named or self._read.get(None, [])
        here = (volume for volume, asked in known if all(self._meets(terms, node) for terms in asked))
        return matching_volumes(claim, here)

    def _is_made_at(self, claim: PersistentVolumeClaim, node: str) -> bool:
        kind = self._known.storage_class(claim.spec.storage_class_name or "")
        terms = makes_at(kind) if kind is not None else ()
        return terms is None or self._meets(terms, node)
