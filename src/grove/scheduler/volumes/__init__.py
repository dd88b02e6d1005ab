"""What volume claims ask of a node. Pure."""
