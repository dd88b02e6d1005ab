"""What is wrong with what pods refer to: a row a cause."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.support import objects

from grove.answers.referred import with_causes
from grove.api import labels
from grove.api.core import Event, Namespace
from grove.api.meta import Json
from grove.api.node import PersistentVolume, PersistentVolumeClaim, StorageClass
from grove.api.podclique import PodClique
from grove.diagnosis.causes import DEFAULT_CLASS, LATER, Referred, causes
from grove.diagnosis.seen import Seen
from grove.kube.errors import Forbidden

CLAIMED = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "models"}}]}
HF = ("Secret", "hf")
TOKEN = {"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}


def clique_with_pod_spec(pod_spec: Json) -> PodClique:
    return objects.clique("x-0-w", spec={"podSpec": pod_spec})


def with_env(*env: Json, **container: Any) -> Json:
    return {"containers": [{"name": "c", "env": list(env), **container}]}


def claim(phase: str = "Pending", **spec: Any) -> PersistentVolumeClaim:
    return msgspec.convert(
        {"metadata": {"name": "models"}, "spec": spec, "status": {"phase": phase}}, PersistentVolumeClaim
    )


def storage(mode: str = "Immediate", *, default: bool = False) -> StorageClass:
    meta = {"name": "fast", "annotations": {DEFAULT_CLASS: "true"} if default else {}}
    return msgspec.convert({"metadata": meta, "provisioner": "csi.example", "volumeBindingMode": mode}, StorageClass)


TEN = {"resources": {"requests": {"storage": "10Gi"}}}


def volume(phase: str = "Available", **spec: Any) -> PersistentVolume:
    own = {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadOnlyMany"], **spec}
    return msgspec.convert({"metadata": {"name": "pv-1"}, "spec": own, "status": {"phase": phase}}, PersistentVolume)


def warned(message: str) -> Event:
    about = {"kind": "PersistentVolumeClaim", "name": "models", "namespace": "ns"}
    return msgspec.convert({"metadata": {"name": "e"}, "involvedObject": about, "message": message}, Event)


def referred(**found: Any) -> Referred:
    return Referred(**{"claims": {}, "classes": {}, "keys": {}, **found})


@pytest.mark.parametrize(
    ("pod_spec", "found", "want"),
    [
        pytest.param(
            CLAIMED, referred(claims={"models": None}), "PersistentVolumeClaim models does not exist", id="no claim"
        ),
        pytest.param(CLAIMED, referred(claims={"models": claim("Bound")}), "", id="a claim that is bound"),
        pytest.param(CLAIMED, referred(), "", id="a claim that may not be read"),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="", volumeName="pv-1")}, volumes=()),
            "PersistentVolume pv-1 does not exist; PersistentVolumeClaim models names it",
            id="no such volume",
        ),
        pytest.param(
            CLAIMED,
            referred(
                claims={"models": claim(storageClassName="", volumeName="pv-1")},
                volumes=(volume(claimRef={"namespace": "a", "name": "b", "uid": "other"}),),
            ),
            "PersistentVolume pv-1 belongs to claim a/b",
            id="a volume of another claim",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="", **TEN)}, volumes=()),
            "no PersistentVolume is free for PersistentVolumeClaim models",
            id="no volume",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="", **TEN)}, volumes=(volume(),)),
            "no free PersistentVolume has the 10Gi of PersistentVolumeClaim models; the largest has 5Gi",
            id="small",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="", accessModes=["ReadWriteMany"])}, volumes=(volume(),)),
            "no free PersistentVolume allows ReadWriteMany for PersistentVolumeClaim models; they allow ReadOnlyMany",
            id="other access modes",
        ),
        pytest.param(
            CLAIMED,
            referred(
                claims={"models": claim(storageClassName="", **TEN)},
                volumes=(volume("Released", claimRef={"namespace": "a", "name": "b", "uid": "gone"}),),
            ),
            "PersistentVolume pv-1 is Released, so PersistentVolumeClaim models cannot have it",
            id="released",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="")}, volumes=(volume(),)),
            "PersistentVolumeClaim models is Pending: no PersistentVolume was bound to it",
            id="a volume that suits",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim("Lost", volumeName="pv-1")}),
            "PersistentVolumeClaim models is Lost: its PersistentVolume pv-1 is gone",
            id="a volume that is gone",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="shared-nfs")}, classes={"fast": storage()}),
            "StorageClass shared-nfs does not exist; PersistentVolumeClaim models asks for it",
            id="no such class",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="nfs")}, unread=frozenset({"StorageClass"})),
            "PersistentVolumeClaim models is Pending: no PersistentVolume was bound to it",
            id="classes may not be read",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim()}, classes={"fast": storage()}),
            "PersistentVolumeClaim models names no StorageClass, and no class is the default",
            id="no default class",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim()}, classes={"fast": storage(default=True)}),
            "PersistentVolumeClaim models is Pending: no PersistentVolume was bound to it",
            id="a slow provisioner",
        ),
        pytest.param(
            CLAIMED,
            referred(claims={"models": claim(storageClassName="fast")}, classes={"fast": storage(LATER)}),
            "",
            id="a claim that waits for its pod",
        ),
        pytest.param(with_env(TOKEN), referred(keys={HF: None}), "Secret hf does not exist", id="no Secret"),
        pytest.param(
            with_env(TOKEN),
            referred(keys={("Secret", "hf"): frozenset({"key"})}),
            "Secret hf has no key token; it has key",
            id="a Secret without the key",
        ),
        pytest.param(with_env(TOKEN), referred(keys={HF: frozenset({"token"})}), "", id="a Secret with it"),
        pytest.param(
            with_env({"name": "T", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t", "optional": True}}}),
            referred(keys={("Secret", "hf"): None}),
            "",
            id="an optional Secret",
        ),
        pytest.param(
            with_env(envFrom=[{"configMapRef": {"name": "engine"}}]),
            referred(keys={("ConfigMap", "engine"): None}),
            "ConfigMap engine does not exist",
            id="a ConfigMap as environment",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "tls"}}]}}]},
            referred(keys={("Secret", "tls"): None}),
            "Secret tls does not exist",
            id="a projected Secret",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "secret": {"secretName": "hf", "items": [{"key": "token", "path": "t"}]}}]},
            referred(keys={HF: frozenset({"key"})}),
            "Secret hf has no key token; it has key",
            id="a key that a volume names",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "configMap": {"name": "engine", "items": [{"key": "a"}, {"key": "b"}]}}]},
            referred(keys={("ConfigMap", "engine"): None}),
            "ConfigMap engine does not exist",
            id="two keys of a ConfigMap that does not exist",
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "hf"}]},
            referred(keys={HF: None}),
            "Secret hf does not exist; imagePullSecrets names it",
            id="a Secret for a registry",
        ),
        pytest.param(
            CLAIMED,
            referred(
                claims={"models": claim(storageClassName="fast")},
                classes={"fast": storage(LATER)},
                warnings=(warned("exceeded quota"),),
            ),
            "PersistentVolumeClaim models is Pending: exceeded quota",
            id="a claim that waits for its pod and cannot be provisioned",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "env": [TOKEN]}]},
            referred(keys={("Secret", "hf"): None}),
            "Secret hf does not exist",
            id="an init container's Secret",
        ),
    ],
)
def test_the_object_that_is_wrong_is_named(pod_spec: Json, found: Referred, want: str) -> None:
    said = causes([clique_with_pod_spec(pod_spec)], found)
    assert [one.reason for one in said] == ([want] if want else [])
    assert all(one.step and one.cliques == {"x-0-w"} for one in said)


class Ending:
    """A cluster of which one object is asked for: the namespace, which is being deleted or not, or may not be read."""

    def __init__(self, *, deleting: bool = True, readable: bool = True) -> None:
        self._deleting, self._readable = deleting, readable

    async def get(self, kind: Any, name: str, namespace: str = "") -> Namespace:
        assert (kind, name) == (Namespace, "ns")
        if not self._readable:
            raise Forbidden("no")
        meta = {"name": name} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if self._deleting else {})
        return msgspec.convert({"metadata": meta}, Namespace)


@pytest.mark.parametrize(
    ("client", "ready", "pods", "want"),
    [
        pytest.param(Ending(), 1, 2, ["namespace ns is being deleted"], id="a pod is not ready"),
        pytest.param(Ending(), 2, 1, ["namespace ns is being deleted"], id="a pod is gone, which no status says"),
        pytest.param(Ending(), 2, 2, [], id="all pods are ready"),
        pytest.param(Ending(deleting=False), 1, 1, [], id="the namespace stays"),
        pytest.param(Ending(readable=False), 1, 1, [], id="no right to see namespaces"),
    ],
)
def test_a_namespace_that_is_being_deleted_takes_no_pods(client: Any, ready: int, pods: int, want: list[str]) -> None:
    status = {"replicas": 2, "readyReplicas": ready}
    clique = objects.clique("x-0-w", spec={"replicas": 2, "podSpec": {}}, status=status)
    own = {labels.POD_CLIQUE: "x-0-w"}
    found = [objects.pod(f"x-0-w-{n}", labels=own, spec={}, status={}) for n in range(pods)]
    seen = asyncio.run(with_causes(client, Seen(cliques=[clique], pods=found)))
    assert [cause.reason for cause in seen.causes] == want
