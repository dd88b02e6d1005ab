"""Which devices of a node its claims get: exactly, by Kubernetes' rules, or a plain no.

`allot` takes the first alternatives of the first request that leave a solution for all others. Then, for each attribute
that devices must share, it takes the first value that leaves one. The rest is a matching of devices to requests, found
by augmenting paths. If an easy request has a device that a harder one needs, the easy one gets another. `copies` counts
by the same search how many times claims can be met.

It chooses claim by claim, and drops a choice as soon as no matching exists. Equal claims take their choices in order,
because two of them with swapped devices are the same answer. A choice of values holds a limited number of copies of a
claim by itself. If the remaining values cannot hold the remaining claims, it tries none of them. So it meets eight
equal claims on eight PCIe roots without a wrong choice, and refuses the ninth by counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate, islice, product
from typing import Any, NamedTuple

from grove.scheduler.devices.claim_requests import ClaimRequests, MatchAttribute, counted
from grove.scheduler.devices.device_inventory import ANY, Device, DeviceId, DeviceRequest

Chosen = list[tuple[DeviceRequest, Device]]

MOST_DEVICES = 32
"""The most devices that the API allows in one claim."""
MOST_FAILURES = 500
"""Choices that may turn out wrong for the claims of one node; of claims people write hardly any does."""
MOST_COUNT_FAILURES = 40
"""The same for one trial of a count of copies, which many nodes need."""
MOST_VALUES = 256
"""Choices of shared values that are looked at for one claim."""


def allot(
    claims_requests: Sequence[ClaimRequests],
    devices: Sequence[Device],
    taken: Collection[DeviceId],
    failures: int = MOST_FAILURES,
) -> list[Chosen] | None:
    """Devices for each of the claims, none twice and none that is taken; None if that cannot be.

    None also if no way is found within the limit of failures.
    """
    search = _Search(claims_requests, devices, taken, failures)
    try:
        return search.found()
    except _TooManyFailures:
        return None


def copies(claims_requests: Sequence[ClaimRequests], devices: Sequence[Device], taken: Collection[DeviceId]) -> int:
    """How many times over these claims could be met at once; at least that, where there are too many ways to try."""
    free = [device for device in devices if device.id not in taken]
    needed = counted(claims_requests)
    asked = {device_request.resource: device_request for claim in claims_requests for device_request in claim.asked()}
    have = {name: sum(map(asked[name].matches, free)) for name in needed if name != ANY} | {ANY: len(free)}
    bounds = [have[name] // amount for name, amount in needed.items()]
    bounds += [_most_alike(claim, same, free) for claim in claims_requests for same in claim.same]
    least, most = 0, min(bounds, default=len(devices))
    trial = most
    while least < most:
        if allot([*claims_requests] * trial, devices, taken, MOST_COUNT_FAILURES) is None:
            most = trial - 1
        else:
            least = trial
        trial = (least + most + 1) // 2
    return least


def _most_alike(claim: ClaimRequests, same: MatchAttribute, free: Sequence[Device]) -> int:
    """A bound by one constraint: every copy takes all devices that it covers from those of one value."""
    covered = [either for either in claim.requests if all(map(same.covers, either))]
    least = sum(min(max(1, device_request.count) for device_request in either) for either in covered)
    asked = [device_request for either in covered for device_request in either]
    values = Counter(
        _value(device, same.attribute)
        for device in free
        if any(device_request.matches(device) for device_request in asked)
    )
    return sum(count // least for value, count in values.items() if value is not None) if least else len(free)


def device_signature(claims_requests: Sequence[ClaimRequests], devices: Sequence[Device]) -> tuple[object, ...]:
    """Equal for nodes for which `copies` gives the same answer when the same devices are taken.

    It has the requests that each device can serve, and which devices are alike.
    """
    keys = sorted({same.attribute for claim_requests in claims_requests for same in claim_requests.same})
    seen: list[dict[object, int]] = [{} for _ in keys]
    signature = []
    for device in devices:
        values = (_value(device, key) for key in keys)
        alike = tuple(-1 if v is None else seen[k].setdefault(v, len(seen[k])) for k, v in enumerate(values))
        good_for = tuple(
            asked.matches(device) for claim_requests in claims_requests for asked in claim_requests.asked()
        )
        signature.append((good_for, alike))
    return tuple(signature)


class _TooManyFailures(Exception):
    """The limit of failed choices is reached; what was not tried is unknown."""


class _Claim(NamedTuple):
    """A claim with its alternatives chosen."""

    claims_requests: ClaimRequests
    picked: tuple[DeviceRequest, ...]


class _Values(NamedTuple):
    """Values for the constraints of a claim and the devices that may then serve each of its requests.

    Also how many such claims there could be if there were no others."""

    values: tuple[tuple[MatchAttribute, object], ...]
    units: list[list[int]]
    most: int


class _Search:
    """Devices are numbers here. `owner` is a matching: for each device the unit that has it, or -1.

    A unit is one requested device, with the devices that can serve it.
    """

    def __init__(
        self,
        claims_requests: Sequence[ClaimRequests],
        devices: Sequence[Device],
        taken: Collection[DeviceId],
        failures: int,
    ) -> None:
        self._claims_requests, self._devices, self._failures_left = claims_requests, devices, failures
        self._none = [-1] * len(devices)
        self._requests = [
            (claim, either)
            for claim, claim_requests in enumerate(claims_requests)
            for either in claim_requests.requests
        ]
        self._first = list(accumulate((len(claim_requests.requests) for claim_requests in claims_requests), initial=0))
        self._free = [device.id not in taken for device in devices]
        self._units: list[list[int]] = []
        self._twin: list[int] = []
        last: dict[ClaimRequests, int] = {}
        for claim, claim_requests in enumerate(claims_requests):
            self._twin.append(last.get(claim_requests, -1))
            last[claim_requests] = claim
        self._matching = {
            asked: [d for d, device in enumerate(devices) if asked.matches(device)]
            for claim_requests in last
            for asked in claim_requests.asked()
        }
        self._values = {
            same.attribute: [_value(device, same.attribute) for device in devices]
            for claim_requests in last
            for same in claim_requests.same
        }

    def found(self) -> list[Chosen] | None:
        """The first way, or None."""
        if all(len(either) == 1 for _, either in self._requests):
            return self._with_values([0] * len(self._requests))
        return self._pick(0, [], self._none)

    def _pick(self, at: int, picked: list[int], owner: list[int]) -> list[Chosen] | None:
        """Chooses alternatives for the requests from `at` on, then values."""
        if at == len(self._requests):
            before, self._units = self._units, []
            chosen = self._with_values(picked)
            self._units = before
            return chosen
        claim, either = self._requests[at]
        for number in range(self._least(claim, at, picked), len(either)):
            length = len(self._units)
            units = self._units_of(either[number], ())
            moved = self._settled(units, owner) if units is not None else None
            if moved is not None and (chosen := self._pick(at + 1, [*picked, number], moved)) is not None:
                return chosen
            self._failed(length)
        return None

    def _least(self, claim: int, at: int, picked: Sequence[int]) -> int:
        """The first alternative to try: an equal claim before this one had no later ones."""
        twin = self._twin[claim]
        if twin < 0:
            return 0
        own, other = self._first[claim], self._first[twin]
        done = at - own
        return picked[other + done] if picked[other : other + done] == picked[own:at] else 0

    def _with_values(self, picked: Sequence[int]) -> list[Chosen] | None:
        claims = []
        for claim, claim_requests in enumerate(self._claims_requests):
            numbers = picked[self._first[claim] : self._first[claim + 1]]
            claims.append(
                _Claim(
                    claim_requests, tuple(either[n] for either, n in zip(claim_requests.requests, numbers, strict=True))
                )
            )
        count = Counter(claims)
        ways = {claim: self._values_of(claim, number) for claim, number in count.items()}
        if not all(ways.values()):
            return None
        capacity = {
            claim: list(accumulate(way.most for way in reversed(values)))[::-1] for claim, values in ways.items()
        }

        def choose(claim: int, chosen: list[int], owner: list[int]) -> list[int] | None:
            if claim == len(claims):
                return chosen
            own = claims[claim]
            alike = [way for other, way in zip(claims, chosen, strict=False) if other == own]
            first = alike[-1] if alike else 0
            for number in range(first, len(ways[own])):
                used = alike.count(number)
                if capacity[own][number] - used < count[own] - len(alike):
                    return None
                if used == ways[own][number].most:
                    continue
                length = len(self._units)
                moved = self._settled(ways[own][number].units, owner)
                if moved is not None and (answer := choose(claim + 1, [*chosen, number], moved)) is not None:
                    return answer
                self._failed(length)
            return None

        chosen = choose(0, [], self._none)
        if chosen is None:
            return None
        self._units.clear()
        return self._handed_out([(claim, ways[claim][number]) for claim, number in zip(claims, chosen, strict=True)])

    def _values_of(self, claim: _Claim, number: int) -> list[_Values]:
        """Choices of values, the best first; those that no claim could have are left out."""
        bound = [same for same in claim.claims_requests.same if any(map(same.covers, claim.picked))]
        choices = []
        for values in islice(product(*(self._usable(same, claim.picked) for same in bound)), MOST_VALUES):
            way = tuple(zip(bound, values, strict=True))
            units: list[list[int]] | None = []
            for asked in claim.picked:
                more = self._units_of(asked, way)
                units = [*units, *more] if units is not None and more is not None else None
            if units is None or len(units) > MOST_DEVICES:
                continue
            most, owner = 0, self._none
            while bound and most < number and (moved := self._settled(units, owner)) is not None:
                most, owner = most + 1, moved
            self._units.clear()
            if most or not bound:
                choices.append(_Values(way, units, most or number))
        return choices

    def _usable(self, same: MatchAttribute, picked: Sequence[DeviceRequest]) -> list[object]:
        """Values that devices have, those of the fewest first: what is whole elsewhere stays whole. Each request that
        the constraint covers finds devices of such a value."""
        have = Counter(value for value in self._values[same.attribute] if value is not None)
        covered = [asked for asked in picked if same.covers(asked)]
        usable = (
            value
            for value in have
            if all(self._units_of(device_request, ((same, value),)) for device_request in covered)
        )
        return sorted(usable, key=lambda value: (have[value], repr(value)))

    def _units_of(
        self, asked: DeviceRequest, values: Sequence[tuple[MatchAttribute, object]]
    ) -> list[list[int]] | None:
        """One unit for each device that is asked for; None if there are too few. All devices are a unit each."""
        all_ = self._matching[asked]
        free = [d for d in all_ if self._free[d]]
        for same, value in values:
            if same.covers(asked):
                has = self._values[same.attribute]
                free = [d for d in free if has[d] == value]
        if asked.count == 0:
            return [[d] for d in all_] if all_ and len(free) == len(all_) else None
        return [free] * asked.count if len(free) >= asked.count else None

    def _settled(self, units: Sequence[list[int]], owner: list[int]) -> list[int] | None:
        """The matching with more units in it; None if there is none. To give a choice up, take its units out."""
        owner = owner.copy()
        for unit in units:
            self._units.append(unit)
            if not self._settle(len(self._units) - 1, owner, set()):
                return None
        return owner

    def _settle(self, unit: int, owner: list[int], seen: set[int]) -> bool:
        open_ = [d for d in self._units[unit] if d not in seen]
        if (idle := next((d for d in open_ if owner[d] < 0), None)) is not None:
            owner[idle] = unit
            return True
        for d in open_:
            seen.add(d)
            if self._settle(owner[d], owner, seen):
                owner[d] = unit
                return True
        return False

    def _handed_out(self, ways: Sequence[tuple[_Claim, _Values]]) -> list[Chosen]:
        """Devices by claim. Requests for all devices of a node come first, then the others in order."""
        asked = [
            (claim, device_request, unit)
            for claim, (own, way) in enumerate(ways)
            for device_request in own.picked
            for unit in self._units_of(device_request, way.values) or ()
        ]
        asked.sort(key=lambda entry: entry[1].count > 0)
        owner = self._settled([unit for _, _, unit in asked], self._none)
        assert owner is not None
        by_claim: list[Chosen] = [[] for _ in ways]
        for d, unit in enumerate(owner):
            if unit >= 0:
                by_claim[asked[unit][0]].append((asked[unit][1], self._devices[d]))
        return [sorted(chosen, key=lambda pair: (pair[0].name, pair[1].id)) for chosen in by_claim]

    def _failed(self, length: int) -> None:
        """Drops the units after the first `length` and counts a failure; raises if there were too many."""
        del self._units[length:]
        self._failures_left -= 1
        if self._failures_left < 0:
            raise _TooManyFailures


def _value(device: Device, attribute: str) -> object:
    """The attribute with its type, for 1 is not true; None for a device that lacks it."""
    value: Any = device.attributes.get(attribute)
    return None if value is None else (type(value).__name__, value)
