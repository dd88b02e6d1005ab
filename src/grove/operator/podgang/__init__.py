"""PodGang: which pods belong together, for the scheduler that places them."""
