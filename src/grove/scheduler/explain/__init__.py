"""Why a gang waits, with numbers, and the smallest changes that would help.

explanation.explain(snapshot, gang, running)  -> Explanation: findings from the outside in, and changes
explanation.queue_rows                        the tree of queues as rows of numbers
changes.smallest_changes                      each change is tried out by `place` before it is named
"""
