"""Token Secrets of ServiceAccounts: filled a moment after they are created, deleted when their account is not there."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

from grove.api.meta import Json, Key, Resource
from grove.sim.kinds import SECRET, SERVICE_ACCOUNT, TOKEN_ACCOUNT, TOKEN_ACCOUNT_UID, TOKEN_SECRET
from grove.sim.store import Change

if TYPE_CHECKING:
    from grove.sim.server import SimServer


class TokenController:
    def __init__(self, server: SimServer, *, delay_s: float = 0.01) -> None:
        self._server, self._delay_s = server, delay_s
        server.store.listeners.append(self._note)

    def _note(self, resource: Resource, change: Change) -> None:
        if resource == SECRET and change.type == "ADDED" and change.version.json.get("type") == TOKEN_SECRET:
            asyncio.get_running_loop().call_later(self._delay_s, self._fill, change.version.key)
        elif resource == SERVICE_ACCOUNT and change.type == "DELETED":
            asyncio.get_running_loop().call_later(self._delay_s, self._delete_tokens, change.version.key)

    def _fill(self, key: Key) -> None:
        secret = self._server.find(SECRET, key.name, key.namespace)
        if secret is None or (secret.get("data") or {}).get("token"):
            return
        annotations = secret["metadata"]["annotations"]
        account = self._server.find(SERVICE_ACCOUNT, annotations[TOKEN_ACCOUNT], key.namespace)
        if account is None:
            self._server.remove(SECRET, key)
            return
        uid = account["metadata"]["uid"]
        data = {
            "token": _base64(f"sim.{uid}.{secret['metadata']['uid']}"),
            "ca.crt": _base64("simulated certificate authority"),
            "namespace": _base64(key.namespace),
        }
        meta = {**secret["metadata"], "annotations": {**annotations, TOKEN_ACCOUNT_UID: uid}}
        filled: Json = {**secret, "metadata": meta, "data": {**(secret.get("data") or {}), **data}}
        self._server.store.put(SECRET, filled)

    def _delete_tokens(self, account: Key) -> None:
        for secret in self._server.all(SECRET, account.namespace):
            annotations = secret["metadata"].get("annotations") or {}
            if secret.get("type") == TOKEN_SECRET and annotations.get(TOKEN_ACCOUNT) == account.name:
                self._server.remove(SECRET, Key(account.namespace, secret["metadata"]["name"]))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
