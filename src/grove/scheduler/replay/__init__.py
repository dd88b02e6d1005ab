"""A scheduler's run written down and played again."""
