"""Which reason a waiting pod has: node autoscalers buy nodes for `Unschedulable`, and for nothing else."""

from __future__ import annotations

import pytest

from grove.scheduler.model import reasons as kinds
from grove.scheduler.model.reasons import Reason
from grove.scheduler.policy import gang_state as states
from grove.scheduler.policy.gang_state import Verdict
from grove.scheduler.policy.waiting_reasons import pod_reason, refused


def kept_out(kind: str) -> Reason:
    return Reason(kinds.NOT_ADMITTED, "quota", parts=(Reason(kind, "team"),))


NODES_HELP = [
    kinds.NO_NODE,
    kinds.NO_CAPACITY,
    kinds.NO_DOMAIN,
    kinds.NO_PACKING,
    kinds.NO_DEVICES,
    kinds.PINNED,
    kinds.ONE_MORE,
    kinds.BUDGET_ENDED,
    kinds.UNKNOWN_LEVEL,  # a cluster that starts without nodes has no labels
]
NO_NODES_HELP = [
    (kept_out(kinds.QUOTA_EXCEEDED), "QuotaExceeded", "QuotaExceeded"),
    (kept_out(kinds.QUOTA_KEPT), "QuotaExceeded", "QuotaExceeded"),
    (kept_out(kinds.QUEUE_MISSING), "QueueDoesNotExist", "QueueDoesNotExist"),
    (kept_out(kinds.QUEUE_INVALID), "QueueInvalid", "QueueInvalid"),
    (kept_out(kinds.QUEUE_NOT_LEAF), "QueueInvalid", "QueueInvalid"),
    (kept_out("RuleOfAnExtension"), "Unschedulable", "NotAdmitted"),
    (Reason(kinds.NOT_ADMITTED, "policy"), "Unschedulable", "NotAdmitted"),
    (Reason(kinds.MISSING_PODS, "w"), "Unschedulable", "MissingPods"),
]
OTHER_WAITS = [
    (states.HELD_FOR_OTHERS, "NodesHeldForOthers"),
    (states.WAITING_FOR_BASE, "WaitingForBaseGang"),
    (states.WAITING_FOR_PODS, "WaitingForPods"),
    (states.WAITING_FOR_GATES, "SchedulingGated"),
    (states.PREEMPTING, "Preempting"),
    (states.BIND_FAILED, "BindFailed"),
    (states.GANG_TIMEOUT, "GangTimeout"),
    (states.INVALID, "SchedulerError"),
    (states.QOS_MISMATCH, "SchedulerError"),
]


@pytest.mark.parametrize("kind", NODES_HELP)
def test_a_gang_that_new_nodes_could_help_is_unschedulable(kind: str) -> None:
    verdict = refused(Reason(kind, "w"))
    assert (verdict.placed, verdict.reason, pod_reason(verdict)) == (False, "Unschedulable", "Unschedulable")


@pytest.mark.parametrize(("why", "on_gang", "on_pod"), NO_NODES_HELP)
def test_a_refusal_that_no_node_changes_has_another_reason_on_the_pods(why: Reason, on_gang: str, on_pod: str) -> None:
    verdict = refused(why)
    assert (verdict.reason, pod_reason(verdict)) == (on_gang, on_pod)


@pytest.mark.parametrize(("reason", "on_pod"), OTHER_WAITS)
def test_every_other_wait_has_its_own_reason_on_the_pods(reason: str, on_pod: str) -> None:
    assert pod_reason(Verdict(False, reason, Reason(kinds.NO_CAPACITY))) == on_pod


@pytest.mark.parametrize(
    ("kind", "on_pod"),
    [(kinds.HEADROOM_OF_OTHERS, "Unschedulable"), (kinds.QUOTA_OF_HEADROOM, "NodesHeldForOthers")],
)
def test_a_gang_that_headroom_of_others_keeps_out_gets_nodes_but_not_if_it_lacks_quota(kind: str, on_pod: str) -> None:
    assert pod_reason(Verdict(False, states.HELD_FOR_OTHERS, Reason(kind, "default/chat"))) == on_pod
