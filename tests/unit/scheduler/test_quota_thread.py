"""A decision that is made in a thread reads the use of queues for itself."""

from __future__ import annotations

from tests.support.scheduler.kit import GPU, node, pod, snap

from grove.scheduler.policy.queue_tree import QueueTree, QuotaQueue
from grove.scheduler.policy.quota_objects import QueueObjects
from grove.scheduler.policy.quota_policy import FixedUse, Quota


def test_what_a_thread_reads_of_queues_is_not_what_the_loop_reads() -> None:
    tree = QueueTree([QuotaQueue("kai/a", limit={GPU: 4})])
    quota = Quota(QueueObjects(tree, {}, "kai/a", frozenset({"kai"})))
    snapshot = snap([node("n")], [pod("p", 2, on="n")])
    snapshot.use(snapshot.seams.with_policies([quota, FixedUse(quota)]))
    before = quota.reading(snapshot)
    twin = snapshot.copy_for_thread()
    (other, _) = twin.seams.policies
    assert isinstance(other, Quota)
    assert other is not quota
    twin.remove_pod("p")
    assert other.reading(twin) is not before
    assert quota.reading(snapshot) is before, "the loop goes on with what it read"
