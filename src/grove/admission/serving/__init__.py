"""The webhook server, its registration, and what it reads of the cluster for the rules."""
