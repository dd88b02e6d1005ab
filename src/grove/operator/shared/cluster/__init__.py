"""What kinds share that touches the cluster: writers, readers of the cache, and `Deps`, which holds them."""
