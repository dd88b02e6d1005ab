"""Devices: those of dynamic resource allocation (claims), and Koordinator's cards with their minors.

- `devices`: Device, Inventory: devices of the cluster by node; `cel`: their selectors.
- `claims_requests`: what a claim asks for, also as counts on nodes.
- `allot`: devices for all claims of a node at once, or None.
- `device_counts`: how many devices nodes have free, by what pods ask for.
- `shared_claims`: nodes for pods that share a claim.
- `minors`: cards, shares of cards and partitions of a node.
- `device_objects`: what Koordinator's objects say of them.
"""
