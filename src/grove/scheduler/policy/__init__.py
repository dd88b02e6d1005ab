"""Who may run, in which order, and who is tried again when something changed."""
