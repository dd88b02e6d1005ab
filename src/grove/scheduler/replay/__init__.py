"""Runs recorded as journals, and played again without a cluster.

journal.Journal, RecordedSnapshot    write;  replay.replay(directory) makes every decision again
"""
