"""The cluster as columns of integers: nodes, topology, counts of pods, and the snapshot that carries them."""
