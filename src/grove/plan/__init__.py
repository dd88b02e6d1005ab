"""A copy of a cluster inside the process, and what would happen on it."""
