"""Calls of the core: it gets a snapshot and a unit, and answers with a value.

decisions                places a unit, on the event loop or in a thread
victim_search            finds victims, and places that become free when terminating pods are gone
claim_homes              nodes to which the claims of pods are bound
answer_checks            whether an answer that took long still holds
"""
