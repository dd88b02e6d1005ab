"""PodGang: which pods belong together, told to the scheduler that places them."""
