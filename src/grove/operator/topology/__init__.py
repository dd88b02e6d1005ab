"""ClusterTopologyBinding: domain names to node labels, and the schedulers' own topology objects."""
