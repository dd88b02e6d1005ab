"""Where a unit comes in the queue by its quota: the namespace of its pods counts, whatever the unit is called."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.scheduler.kit import GPU, node, pod, snap

from grove.scheduler.model.seams import Applicant
from grove.scheduler.policy.queue_tree import QueueTree, QuotaQueue
from grove.scheduler.policy.quota_objects import QueueObjects
from grove.scheduler.policy.quota_policy import Quota

TREE = QueueTree([QuotaQueue("elastic/a", limit={GPU: 4}), QuotaQueue("elastic/b", limit={GPU: 4})])
OF_NAMESPACE = {"busy": "elastic/a", "idle": "elastic/b"}


@pytest.mark.parametrize("name", ["{}/gang", "pod:{}/pod", "reservation:group"])
def test_a_unit_ranks_by_the_queue_of_its_namespace(name: str) -> None:
    quota = Quota(QueueObjects(TREE, OF_NAMESPACE))
    running = msgspec.structs.replace(pod("p", 2, on="n"), namespace="busy")
    snapshot = snap([node("n")], [running])
    snapshot.use(snapshot.seams.with_policies([quota]))
    ranks = [quota.rank(snapshot, Applicant(name.format(one), 0, {}, one)) for one in ("idle", "busy")]
    assert ranks == sorted(ranks)
    assert ranks[0] < ranks[1]
