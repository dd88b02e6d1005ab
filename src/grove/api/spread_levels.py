"""Whether a spread goes together with the pack constraints around it, by the order of the topology's levels.

A unit (a replica of the set or of a group, a pod) is counted in one domain. So the domain that a replica is packed into
may not be broader than the domain to spread over. And units that are packed together are all in one domain: that domain
has to be broader than the one to spread over. Admission asks when a set comes, the operator when the topology changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class SpreadOwner(NamedTuple):
    """A set, a scaling group or a clique: the domain it is required to be in, and the domain it is spread over.

    Both are empty if there is none.
    """

    name: str
    """As in `topologyConstraint of the set`; empty for a clique, whose pods are spread."""
    pack: str = ""
    over: str = ""

    def kept_in(self) -> Iterator[tuple[str, str]]:
        """Domains in which all that is inside a replica of this owner is, with the reason."""
        yield f'topologyConstraint of {self.name} requires one "{self.pack}"', self.pack
        yield f'spreadConstraint of {self.name} keeps a replica in one "{self.over}"', self.over


def contradictions(owner: SpreadOwner, around: Sequence[SpreadOwner], levels: Mapping[str, int]) -> Iterator[str]:
    """Why the spread of an owner is impossible. `around` are the owners it is in, `levels` the positions of domains."""
    if owner.over not in levels:
        return
    if owner.name and owner.pack in levels and levels[owner.pack] < levels[owner.over]:
        yield f'narrower than "{owner.pack}", which topologyConstraint requires: a replica is counted in one domain'
    reasons = [reason for part in around for reason in part.kept_in()]
    if not owner.name:
        reasons.append((f'its topologyConstraint requires one "{owner.pack}"', owner.pack))
    for reason, domain in reasons:
        if domain in levels and levels[domain] >= levels[owner.over]:
            yield f"nothing can be spread over it: {reason}"
            return
