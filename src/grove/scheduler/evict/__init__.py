"""Who must leave so that a gang fits, and which nodes are held for one that waits."""
