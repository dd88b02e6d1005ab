"""Devices of dynamic resource allocation: what there is, what claims ask for, and who gets which.

devices    Device, Inventory: devices of the cluster by node;  cel: their selectors
wants      what a claim asks for, as counts on nodes
allot      allot(wants, devices, taken): devices for all claims of a node at once, or None
homes      nodes for pods that share a claim
"""
