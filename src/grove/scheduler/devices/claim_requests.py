"""What resource claims ask for, read from their spec, and as counts on nodes.

`counted` is what the search counts. Counting one request at a time can be too optimistic. Requests may compete for the
same devices, have alternatives, take all devices of a node, or share attributes. Then `set_name` names one more
resource: whole sets of what a pod claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from grove.api.core import DeviceClass
from grove.api.meta import Json
from grove.scheduler.devices.cel import NotUnderstood, selector
from grove.scheduler.devices.device_inventory import ANY, DEVICES, SET, DeviceRequest


@dataclass(frozen=True, slots=True)
class MatchAttribute:
    """Devices of the named requests, or of all if none is named, must have one value of the attribute."""

    attribute: str
    requests: frozenset[str] = frozenset()

    def covers(self, asked: DeviceRequest) -> bool:
        return not self.requests or asked.name in self.requests or asked.name.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True)
class ClaimRequests:
    requests: tuple[tuple[DeviceRequest, ...], ...]
    """The alternatives of each request, best first."""
    same: tuple[MatchAttribute, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True if each request is a number of devices, independent of the other requests."""
        return not self.same and all(len(either) == 1 and either[0].count for either in self.requests)

    def asked(self) -> list[DeviceRequest]:
        return [device_request for either in self.requests for device_request in either]

    def only(self, kept: Iterable[tuple[DeviceRequest, ...]]) -> ClaimRequests:
        return replace(self, requests=tuple(kept))


def counted(claims_requests: Iterable[ClaimRequests]) -> Counter[str]:
    """Devices that must be free on a node whatever else is true, by what is asked of them."""
    count: Counter[str] = Counter()
    for claim_requests in claims_requests:
        for either in claim_requests.requests:
            if len(either) == 1 and either[0].count:
                count[either[0].resource] += either[0].count
            count[ANY] += min(max(1, asked.count) for asked in either)
    return count


def set_name(claims_requests: Sequence[ClaimRequests]) -> str:
    """The resource that stands for one whole set of what these claims ask for; empty where counting is exact."""
    if (
        all(claim_requests.is_plain for claim_requests in claims_requests)
        and len(counted(claims_requests).keys() - {ANY}) <= 1
    ):
        return ""
    kinds = sorted({asked.kind for claim_requests in claims_requests for asked in claim_requests.asked()})
    mark = sha256(repr(sorted(map(repr, claims_requests))).encode()).hexdigest()[:8]
    return f"{DEVICES}{'+'.join(kinds)}{SET}{mark}"


def read_claim_requests(spec: Json, classes: Mapping[str, DeviceClass]) -> ClaimRequests:
    """The requests of a claim. Raises NotUnderstood for requests that we cannot meet, and for unknown classes."""
    devices = spec.get("devices") or {}
    requests: list[tuple[DeviceRequest, ...]] = []
    for request in devices.get("requests") or ():
        name = request.get("name", "")
        if exactly := request.get("exactly"):
            requests.append((_asked(name, exactly, classes),))
        elif either := request.get("firstAvailable"):
            requests.append(
                tuple(_asked(f"{name}/{alternative.get('name', '')}", alternative, classes) for alternative in either)
            )
        else:
            raise NotUnderstood(f"request {name!r}: neither `exactly` nor `firstAvailable` is given")
    return ClaimRequests(tuple(requests), tuple(_same(constraint) for constraint in devices.get("constraints") or ()))


def _asked(name: str, request: Json, classes: Mapping[str, DeviceClass]) -> DeviceRequest:
    odd = [key for key in ("adminAccess", "capacity") if request.get(key)]
    mode = request.get("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        odd.append(f"allocationMode {mode}")
    if odd:
        raise NotUnderstood(f"request {name!r}: {odd[0]} is not understood")
    kind = classes.get(request.get("deviceClassName", ""))
    if kind is None:
        raise NotUnderstood(f"device class {request.get('deviceClassName', '')!r} does not exist")
    texts = tuple(_expressions(kind.spec) + _expressions(request))
    for text in texts:
        selector(text)
    return DeviceRequest(name, kind.metadata.name, 0 if mode == "All" else max(1, request.get("count", 1)), texts)


def _same(constraint: Json) -> MatchAttribute:
    attribute = constraint.get("matchAttribute")
    if not attribute:
        raise NotUnderstood("constraints other than matchAttribute are not understood")
    return MatchAttribute(attribute, frozenset(constraint.get("requests") or ()))


def _expressions(spec: Json) -> list[str]:
    expressions = []
    for device_selector in spec.get("selectors") or ():
        if "cel" not in device_selector:
            raise NotUnderstood(f"selector {sorted(device_selector)} is not understood")
        expressions.append(str(device_selector["cel"].get("expression", "")))
    return expressions
