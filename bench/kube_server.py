"""A server for the bench, in a process of its own: canned answers in the API server's format, over TLS or not.

    python -m bench.kube_server CERT KEY PODS      prints its port

GET and PATCH of any object answer one pod. A streamed list of pods sends PODS of them, then nothing. `?watch` with
`resourceVersion=1` sends PODS modifications as fast as the client takes them.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Iterator
from typing import Any

CHUNK = 64


def pod(number: int) -> bytes:
    """A pod as an API server 1.36 writes it: defaults filled in, managedFields, conditions, statuses."""
    name = f"inference-0-decode-{number // 8}-worker-{number % 8:05x}"
    revision = 1000 + number
    labels = {
        "app.kubernetes.io/managed-by": "grove-operator",
        "app.kubernetes.io/part-of": "inference",
        "grove.io/podclique": f"inference-0-decode-{number // 8}-worker",
        "grove.io/podgang": f"inference-0-{number // 64}",
        "grove.io/podclique-pod-index": str(number % 8),
        "grove.io/pod-template-hash": "7d9f8c6b5c",
    }
    owner = {
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodClique",
        "name": labels["grove.io/podclique"],
        "uid": f"5b9b1f0e-3f3c-4f51-9d0c-{number // 8:012d}",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    fields = {
        "f:metadata": {"f:labels": {f"f:{key}": {} for key in labels}, "f:ownerReferences": {".": {}}},
        "f:spec": {"f:containers": {'k:{"name":"worker"}': {".": {}, "f:image": {}, "f:resources": {}}}},
    }
    when = "2026-01-15T10:20:30Z"
    resources = {"requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    body: dict[str, Any] = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "generateName": labels["grove.io/podclique"] + "-",
            "namespace": f"team-{number % 20}",
            "uid": f"9f2c1a34-7b11-4c8e-8c1d-{number:012d}",
            "resourceVersion": str(revision),
            "generation": 1,
            "creationTimestamp": when,
            "labels": labels,
            "annotations": {"example.com/revision": "42"},
            "ownerReferences": [owner],
            "managedFields": [
                {
                    "manager": "grove-operator",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": when,
                    "fieldsType": "FieldsV1",
                    "fieldsV1": fields,
                },
                {
                    "manager": "kubelet",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": when,
                    "fieldsType": "FieldsV1",
                    "subresource": "status",
                    "fieldsV1": {
                        "f:status": {
                            "f:conditions": {
                                f'k:{{"type":"{c}"}}': {".": {}, "f:status": {}}
                                for c in ("Initialized", "Ready", "ContainersReady")
                            }
                        }
                    },
                },
            ],
        },
        "spec": {
            "volumes": [
                {
                    "name": "kube-api-access",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        ],
                        "defaultMode": 420,
                    },
                }
            ],
            "containers": [
                {
                    "name": "worker",
                    "image": "registry.example.com/serving/worker:2.4.1",
                    "args": ["--role=decode"],
                    "env": [
                        {"name": "GROVE_PCS_NAME", "value": "inference"},
                        {"name": "GROVE_PCS_INDEX", "value": "0"},
                    ],
                    "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                    "resources": resources,
                    "volumeMounts": [{"name": "kube-api-access", "readOnly": True, "mountPath": "/var/run/secrets"}],
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "nodeName": f"node-{number % 4096:04d}",
            "hostname": name,
            "subdomain": "inference-0",
            "securityContext": {},
            "schedulerName": "grove-scheduler",
            "tolerations": [
                {"key": k, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for k in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "hostIP": "10.0.3.7",
            "hostIPs": [{"ip": "10.0.3.7"}],
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "startTime": when,
            "qosClass": "Burstable",
            "observedGeneration": 1,
            "conditions": [
                {
                    "type": c,
                    "status": "True",
                    "observedGeneration": 1,
                    "lastProbeTime": None,
                    "lastTransitionTime": when,
                }
                for c in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": "worker",
                    "state": {"running": {"startedAt": when}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": "registry.example.com/serving/worker:2.4.1",
                    "started": True,
                    "imageID": "registry.example.com/serving/worker@sha256:" + "5e" * 32,
                    "containerID": "containerd://" + "ab" * 32,
                }
            ],
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


_MARK = 987_654_321
"""A pod number whose digits stand nowhere else, so that a pod can be cut at them once and joined for each number."""


def pods(start: int, end: int, shift: int) -> Iterator[bytes]:
    """Pods by number, about as fast as they can be sent: the same bytes but for name, uid, owner and versions."""
    pieces: dict[int, list[bytes]] = {}
    for number in range(start, end):
        if number % 8 not in pieces:
            whole = pod(_MARK - _MARK % 8 + number % 8)
            for value, sign in (
                (b"%012d" % (_MARK - _MARK % 8 + number % 8), b"\0P"),
                (b"%012d" % (_MARK // 8), b"\0O"),
                (b"-%d-" % (_MARK // 8), b"\0C"),
                (b"%d" % (1000 + _MARK - _MARK % 8 + number % 8), b"\0R"),
            ):
                whole = whole.replace(value, sign)
            pieces[number % 8] = whole.split(b"\0")
        values = {
            80: b"%012d" % number,
            79: b"%012d" % (number // 8),
            67: b"-%d-" % (number // 8),
            82: b"%d" % (1000 + shift + number),
        }
        first, *rest = pieces[number % 8]
        yield first + b"".join([values[piece[0]] + piece[1:] for piece in rest])


class Server(asyncio.Protocol):
    def __init__(self, pods: int) -> None:
        self._pods, self._one = pods, pod(1)
        self._buffer = b""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._out = transport

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            head, separator, rest = self._buffer.partition(b"\r\n\r\n")
            if not separator:
                return
            length = 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            self._answer(head.split(b" ", 2)[1])

    def _answer(self, path: bytes) -> None:
        if b"watch=true" not in path:
            head = (
                b"HTTP/1.1 200 OK\r\nAudit-Id: 0ab1\r\nCache-Control: no-cache, private\r\n"
                b"Content-Type: application/json\r\nX-Kubernetes-Pf-Flowschema-Uid: 1f\r\n"
                b"Date: Thu, 15 Jan 2026 10:20:30 GMT\r\nContent-Length: %d\r\n\r\n"
            )
            self._out.write(head % len(self._one) + self._one)
            return
        initial = b"sendInitialEvents=true" in path
        self._task = asyncio.get_running_loop().create_task(self._stream(initial))

    async def _stream(self, initial: bool) -> None:
        kind = b"ADDED" if initial else b"MODIFIED"
        base = 0 if initial else self._pods
        self._out.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, self._pods, CHUNK):
            end = min(start + CHUNK, self._pods)
            lines = [b'{"type":"%s","object":%s}\n' % (kind, body) for body in pods(start, end, base)]
            await self._chunk(b"".join(lines))
        mark = {
            "type": "BOOKMARK",
            "object": {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(1000 + base + self._pods), "creationTimestamp": None},
            },
        }
        if initial:
            mark["object"]["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}  # type: ignore[index]
        await self._chunk(json.dumps(mark).encode() + b"\n")

    async def _chunk(self, data: bytes) -> None:
        await self._may_write.wait()
        self._out.write(b"%x\r\n%s\r\n" % (len(data), data))


async def main(cert: str, key: str, pods: int) -> None:
    context: ssl.SSLContext | None = None
    if cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
    server = await asyncio.get_running_loop().create_server(lambda: Server(pods), "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
