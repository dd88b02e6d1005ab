"""Moves gangs that run, so that others fit.

movable                  gangs that may be moved, and plans for it
moves                    moves one gang on request
repack_steps             carries out a plan move by move
self_repack              plans and moves without a request, where that is switched on
headroom_moves           moves a gang that lost a node into its headroom
"""
