"""Annotations that ask for headroom: bad values are refused, and schedulers that hold none."""

from __future__ import annotations

import pytest
from tests.support.manifests import clique, group, pcs
from tests.support.reviews import faults, schedulers

from grove.admission.rules.review import Admission
from grove.api.meta import Json
from grove.backends import Backends
from grove.backends.grove import GroveBackend
from grove.backends.kube import KubeBackend

HEADROOM, PRIORITY = "grove.io/headroom", "grove.io/headroom-priority"
ADMISSION = Admission(
    topology_enabled=True, backends=Backends([GroveBackend(), KubeBackend()], default="grove-scheduler")
)
IN_GROUP = "spec.template.podCliqueScalingGroups[0].annotations"


def on_set(**annotations: str) -> Json:
    found = pcs("demo", clique("a"))
    found["metadata"]["annotations"] = {
        name.replace("__", "/").replace("_", "-"): one for name, one in annotations.items()
    }
    return found


def on_group(said: str) -> Json:
    return pcs("demo", clique("a"), groups=[group("grp", "a", annotations={HEADROOM: said})])


@pytest.mark.parametrize("said", ["0", "1", " 2 ", "100"])
def test_a_number_of_replicas_is_admitted_on_a_set_and_on_a_group(said: str) -> None:
    assert faults(ADMISSION, on_set(**{HEADROOM: said})) == []
    assert faults(ADMISSION, on_group(said)) == []


@pytest.mark.parametrize("said", ["", "-1", "1.5", "one", "101", "99999999999"])
def test_another_value_is_refused_with_its_path(said: str) -> None:
    text = f'Invalid value: "{said}": must be a number of further replicas, 0 to 100'
    assert faults(ADMISSION, on_set(**{HEADROOM: said})) == [f"metadata.annotations.{HEADROOM}: {text}"]
    assert faults(ADMISSION, on_group(said)) == [f"{IN_GROUP}.{HEADROOM}: {text}"]


def test_a_priority_is_the_name_of_a_class_and_belongs_to_headroom() -> None:
    assert faults(ADMISSION, on_set(**{HEADROOM: "1", PRIORITY: "spare"})) == []
    [wrong] = faults(ADMISSION, on_set(**{HEADROOM: "1", PRIORITY: "Not A Name"}))
    assert wrong.startswith(f'metadata.annotations.{PRIORITY}: Invalid value: "Not A Name": must be the name of a')
    [alone] = faults(ADMISSION, on_set(**{PRIORITY: "spare"}))
    assert alone.endswith(f"has no effect without {HEADROOM}")


def test_a_scheduler_that_holds_no_headroom_refuses_it() -> None:
    other = Admission(topology_enabled=True, backends=schedulers("default-scheduler"))
    [refused] = faults(other, on_set(**{HEADROOM: "1"}))
    assert refused.startswith(f"metadata.annotations.{HEADROOM}: Forbidden: ")
    assert "holds no headroom; grove-scheduler does" in refused
