"""PodCliqueScalingGroup: the member cliques of its replicas, their rollout and its status."""
