"""The keys themselves: a table of what stands on the wire, so that a slip in a constant is seen."""

from __future__ import annotations

import pytest

from grove.api import labels


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (labels.MANAGED_BY, "app.kubernetes.io/managed-by"),
        (labels.PART_OF, "app.kubernetes.io/part-of"),
        (labels.NAME, "app.kubernetes.io/name"),
        (labels.COMPONENT, "app.kubernetes.io/component"),
        (labels.REPLICA_INDEX, "grove.io/podcliqueset-replica-index"),
        (labels.SCALING_GROUP, "grove.io/podcliquescalinggroup"),
        (labels.SCALING_GROUP_REPLICA_INDEX, "grove.io/podcliquescalinggroup-replica-index"),
        (labels.POD_CLIQUE, "grove.io/podclique"),
        (labels.POD_INDEX, "grove.io/podclique-pod-index"),
        (labels.POD_GANG, "grove.io/podgang"),
        (labels.BASE_POD_GANG, "grove.io/base-podgang"),
        (labels.POD_TEMPLATE_HASH, "grove.io/pod-template-hash"),
        (labels.SCHEDULER_NAME, "grove.io/scheduler-name"),
        (labels.MNNVL_GROUP, "grove.io/mnnvl-group"),
        (labels.KAI_SUBGROUP_NAME, "kai.scheduler/subgroup-name"),
        (labels.HEADLESS_SERVICE, "pcs-headless-service"),
        (labels.AUTOSCALER, "pcs-hpa"),
        (labels.SERVICE_ACCOUNT, "pod-service-account"),
        (labels.ROLE, "pod-role"),
        (labels.ROLE_BINDING, "pod-role-binding"),
        (labels.TOKEN_SECRET, "pod-sa-token-secret"),
        (labels.DISABLE_PROTECTION, "grove.io/disable-managed-resource-protection"),
        (labels.RECONCILE_TRIGGER, "grove.io/reconcile-trigger"),
        (labels.TOPOLOGY_NAME, "grove.io/topology-name"),
        (labels.VOLCANO_QUEUE, "scheduling.grove.io/volcano-queue"),
        (labels.VOLCANO_GROUP_NAME, "scheduling.volcano.sh/group-name"),
        (labels.KUBE_GROUP_NAME, "scheduling.k8s.io/group-name"),
        (labels.KAI_QUEUE, "kai.scheduler/queue"),
        (labels.KAI_SKIP_PODGROUPER, "kai.scheduler/skip-podgrouper"),
        (labels.KAI_POD_GROUP_NAME, "pod-group-name"),
        (labels.SERVICE_ACCOUNT_NAME, "kubernetes.io/service-account.name"),
        (labels.SET_FINALIZER, "grove.io/podcliqueset.grove.io"),
        (labels.CLIQUE_FINALIZER, "grove.io/podclique.grove.io"),
        (labels.GROUP_FINALIZER, "grove.io/podcliquescalinggroup.grove.io"),
        (labels.COMPUTE_DOMAIN_FINALIZER, "grove.io/computedomain-finalizer"),
        (labels.POD_GANG_GATE, "grove.io/podgang-pending-creation"),
        (labels.MNNVL_CLAIM, "mnnvl-claim"),
        (labels.STARTUP_CONTAINER, "grove-initc"),
        (labels.TOKEN_VOLUME, "sa-token-secret-vol"),
        (labels.TOKEN_MOUNT_PATH, "/var/run/secrets/kubernetes.io/serviceaccount"),
        (labels.POD_INFO_VOLUME, "pod-info-vol"),
        (labels.POD_INFO_MOUNT_PATH, "/var/grove/pod-info"),
    ],
    ids=str,
)
def test_key(key: str, want: str) -> None:
    assert key == want
