"""Kubernetes for asyncio: what a controller needs to read, follow and change a cluster, and nothing about Grove.

config, credentials     which cluster, and who we are there
client, http            the protocol everything is written against, and its HTTP side (transport, wire, watch below)
cache                   objects kept up to date (informer follows one kind, store holds it)
workqueue, controller   which key to look at next, and looking at it
writes                  many at once, and carefully after trouble
events, lease           telling users, and being the only one
run, logs, metrics      the process around it
"""
