"""Processes that run until SIGTERM: operator, scheduler, reader of engine metrics and fake nodes, with their probes.

A command in `grove.cli` reads its flags and starts one of them.
"""
