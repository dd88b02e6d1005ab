"""Devices: those of dynamic resource allocation (claims), and Koordinator's cards with their minors.

devices         Device, Inventory: devices of the cluster by node;  cel: their selectors
allot           what a claim asks for, as counts on nodes; devices for all claims of a node at once, or None
shared_claims   nodes for pods that share a claim
minors          cards, shares of cards and partitions of a node
device_objects  what Koordinator's objects say of them
"""
