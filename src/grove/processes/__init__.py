"""Processes that run until they are stopped: operator, scheduler and fake nodes, with probes, metrics and leases.

A command in `grove.cli` reads its flags and starts one of them.
"""
