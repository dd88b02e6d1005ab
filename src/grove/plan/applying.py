"""What `kubectl apply` of a manifest would change in an object that exists, as the patch it sends.

Fields that the manifest leaves out stay, unless the one that was applied last had them: then they go. Who applies with
`--server-side` keeps no such note on the object; of him nothing is taken away here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from grove.api.fields import mapping, text
from grove.api.labels import LAST_APPLIED
from grove.api.meta import Json


def apply_patch(manifest: Json, stored: Json) -> Json:
    """The JSON merge patch; lists are replaced whole, as they are for every custom kind."""
    note = text(mapping(mapping(stored.get("metadata")).get("annotations")).get(LAST_APPLIED))
    try:
        last = _words(mapping(msgspec.json.decode(note))) if note else {}
    except msgspec.DecodeError:
        last = {}
    patch: Json = _over(last, _words(manifest))
    return patch


def _words(obj: Json) -> Json:
    """The part of an object that its author writes: spec, labels and annotations."""
    metadata = mapping(obj.get("metadata"))
    marks = {name: mapping(metadata.get(name)) for name in ("labels", "annotations")}
    return {"metadata": marks, "spec": mapping(obj.get("spec"))}


def _over(last: Any, new: Any) -> Any:
    if not isinstance(last, dict) or not isinstance(new, dict):
        return new
    gone = dict.fromkeys(last.keys() - new.keys())
    return {**gone, **{key: _over(last.get(key), value) for key, value in new.items()}}
