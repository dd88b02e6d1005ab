"""PodClique: its pods, their rollout, what they wait for at the start, and its status."""
