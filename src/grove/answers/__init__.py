"""Answers to the questions that people ask of a cluster: an `Answer` has a value for programs and text for people.

The command line, the live screens and the console import this package. It reads the cluster with a client, asks
`grove.diagnosis` for the reason and `grove.plan` for trials, and leaves the text to `grove.show`. Commands in
`grove.cli` only parse arguments and print. They import an answer when they run, so that help and completion stay fast.
"""
