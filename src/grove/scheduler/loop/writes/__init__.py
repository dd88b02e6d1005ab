"""Writes to the API server.

bind                     binds a placement, or takes it back
evictions                deletes and evicts pods
report                   status, conditions and events
gang_traces              traces of gangs
"""
