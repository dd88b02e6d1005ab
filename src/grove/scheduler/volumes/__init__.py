"""Volume claims: where a pod's volumes can be reached, or made.

claims.pod_volumes(pod, claims)  -> terms its node must meet, and why no node will do
"""
