"""A pod, a node and a gang as values; what the pure functions answer with; the configuration."""
