"""What the init container `grove-initc` runs: hold a pod until the cliques it starts after are ready, then exit 0.

It runs in every pod that waits, so it uses the standard library alone: no event loop, no HTTP library, about 25 MB.
"""
