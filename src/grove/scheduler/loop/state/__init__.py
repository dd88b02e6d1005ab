"""The state of the cluster, as the scheduler sees it now.

view                     the whole state; every other package reads it
unit                     one record for each unit: what is remembered about it
counted_pods             pods on nodes, counted from the moment of the decision
pod_reader               facts of waiting pods
gang_trees               gangs as the core reads them
waiting_demand           requests of waiting units
"""
