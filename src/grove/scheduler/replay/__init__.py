"""Runs recorded as journals, and played again without a cluster.

journal.Journal, RecordedSnapshot    write;  journal.replay(directory) makes every decision again
"""
