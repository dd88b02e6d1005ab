"""PodCliqueSet: its children, its rollout and its status."""
