"""Keys on the wire: labels, annotations, finalizers, scheduling gates and the values that are fixed."""

from __future__ import annotations

# Labels
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
REPLICA_INDEX = "grove.io/podcliqueset-replica-index"
SCALING_GROUP = "grove.io/podcliquescalinggroup"
SCALING_GROUP_REPLICA_INDEX = "grove.io/podcliquescalinggroup-replica-index"
POD_CLIQUE = "grove.io/podclique"
POD_INDEX = "grove.io/podclique-pod-index"
POD_GANG = "grove.io/podgang"
BASE_POD_GANG = "grove.io/base-podgang"
POD_TEMPLATE_HASH = "grove.io/pod-template-hash"
SCHEDULER_NAME = "grove.io/scheduler-name"
MNNVL_GROUP = "grove.io/mnnvl-group"
"""A label of ComputeDomains, and the annotation users choose a group with."""
KAI_SUBGROUP_NAME = "kai.scheduler/subgroup-name"

OPERATOR = "grove-operator"
"""The value of `MANAGED_BY`."""
GROVE_PREFIX = "grove.io/"
"""Keys under it are Grove's own and are not mirrored from a set to its PodGangs."""

# Values of COMPONENT
STANDALONE_CLIQUE = "pcs-podclique"
MEMBER_CLIQUE = "pcsg-podclique"
GROUP_COMPONENT = "pcs-podcliquescalinggroup"
POD_GANG_COMPONENT = "podgang"
HEADLESS_SERVICE = "pcs-headless-service"
AUTOSCALER = "pcs-hpa"
SERVICE_ACCOUNT = "pod-service-account"
ROLE = "pod-role"
ROLE_BINDING = "pod-role-binding"
TOKEN_SECRET = "pod-sa-token-secret"
RESOURCE_CLAIM = "resource-claim"
COMPUTE_DOMAIN = "pcs-computedomain"
WEBHOOK = "webhook"

# Annotations
DISABLE_PROTECTION = "grove.io/disable-managed-resource-protection"
RECONCILE_TRIGGER = "grove.io/reconcile-trigger"
TOPOLOGY_NAME = "grove.io/topology-name"
MAX_GANG_RESTARTS = "grove.io/max-gang-restarts"
VOLCANO_QUEUE = "scheduling.grove.io/volcano-queue"
VOLCANO_GROUP_NAME = "scheduling.volcano.sh/group-name"
KUBE_GROUP_NAME = "scheduling.k8s.io/group-name"
KAI_QUEUE = "kai.scheduler/queue"
"""A label or an annotation; the label wins."""
KAI_NODE_POOL = "kai.scheduler/node-pool"
KAI_SKIP_PODGROUPER = "kai.scheduler/skip-podgrouper"
KAI_TOPOLOGY = "kai.scheduler/topology"
KAI_POD_GROUP_NAME = "pod-group-name"
GANG_TIMEOUT = "scheduling.koordinator.sh/gang-timeout"
SERVICE_ACCOUNT_NAME = "kubernetes.io/service-account.name"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

MNNVL_NONE = "none"
"""The MNNVL group that means: no group, whatever the parents say."""

# Finalizers
SET_FINALIZER = "grove.io/podcliqueset.grove.io"
CLIQUE_FINALIZER = "grove.io/podclique.grove.io"
GROUP_FINALIZER = "grove.io/podcliquescalinggroup.grove.io"
COMPUTE_DOMAIN_FINALIZER = "grove.io/computedomain-finalizer"

# Pods
POD_GANG_GATE = "grove.io/podgang-pending-creation"
MNNVL_CLAIM = "mnnvl-claim"
STARTUP_CONTAINER = "grove-initc"
TOKEN_VOLUME = "sa-token-secret-vol"
TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
POD_INFO_VOLUME = "pod-info-vol"
POD_INFO_MOUNT_PATH = "/var/grove/pod-info"

# Scheduler backends, by the name pods carry in schedulerName
GROVE_SCHEDULER = "grove-scheduler"
DEFAULT_SCHEDULER = "default-scheduler"
KAI_SCHEDULER = "kai-scheduler"
VOLCANO_SCHEDULER = "volcano"
KOORDINATOR_SCHEDULER = "koord-scheduler"
