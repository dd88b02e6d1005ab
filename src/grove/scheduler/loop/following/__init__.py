"""Follows the cluster: objects of the API become changes of the state. It decides nothing.

follower                 pods, PodGangs, nodes and what belongs to them
optional_kinds           kinds that a cluster may lack
quota_follower           ElasticQuotas and KAI's queues
"""
