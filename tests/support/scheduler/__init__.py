"""Random cases, a referee and builders for the scheduler's core."""
