"""Volume claims: the nodes that reach a pod's volumes, or may get new ones.

claims.pod_volumes(pod, claims)  -> terms its node must meet, and why no node will do
"""
