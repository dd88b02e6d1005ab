"""What a GitOps tool finds when it compares Git with a set after admission filled in defaults.

Argo CD compares by a three-way JSON merge patch, which it applies to the live object. Such a patch replaces whole
lists, so a default inside a list is a difference that never goes away. A server-side comparison merges lists by key and
runs admission; `tests/admission/test_real_admission.py` does it on a real API server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.manifests import clique, group, pcs

from grove.admission.rules.defaulting import missing_defaults, with_additions
from grove.api.patch import apply_merge_patch, merge_patch

Json = dict[str, Any]
SAMPLES = Path(__file__).parents[3] / "samples"


def admitted(obj: Json) -> Json:
    return with_additions(obj, missing_defaults(obj, None, "default"))


def predicted(applied: Json, live: Json) -> Json:
    """The live object after a three-way merge of what is in Git: added and changed fields win, others stay."""
    patch = merge_patch(live, apply_merge_patch(live, applied))
    found: Json = apply_merge_patch(live, patch)
    return found


def sets_of_samples() -> list[Any]:
    return [
        pytest.param(one, id=f"{path.stem} {one['metadata']['name']}")
        for path in sorted(SAMPLES.glob("*.yaml"))
        for one in yaml.safe_load_all(path.read_text())
        if one and one["kind"] == "PodCliqueSet"
    ]


@pytest.mark.parametrize("obj", sets_of_samples())
def test_a_set_that_has_its_defaults_in_git_shows_no_difference(obj: Json) -> None:
    written = admitted(obj)
    assert missing_defaults(written, None, "default") == []
    assert predicted(written, written) == written


def test_a_default_outside_lists_shows_no_difference() -> None:
    obj = pcs("chat", clique("w"))
    del obj["spec"]["replicas"]
    obj["spec"]["template"].pop("terminationDelay", None)
    live = admitted(obj)
    assert live != obj
    assert predicted(obj, live) == live


def test_a_default_inside_a_list_does() -> None:
    """The reason why the page asks for a server-side comparison."""
    obj = pcs("chat", clique("w"), groups=[group("g", "w")])
    del obj["spec"]["template"]["cliques"][0]["spec"]["minAvailable"]
    live = admitted(obj)
    assert predicted(obj, live) != live
