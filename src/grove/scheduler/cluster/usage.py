"""What the pods on nodes take together, by account: the numbers a policy compares with its limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grove.scheduler.model.facts import PodFacts
from grove.scheduler.model.seams import Policy

NONE: Mapping[str, int] = {}


class Usage:
    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        # Most policies charge nobody, and pods come and go by the thousand.
        self._accounts = [one.account for one in policies if type(one).account is not Policy.account]
        self._sums: dict[str, Mapping[str, int]] = {}
        self.state: object = object()
        """Another one after every change; a copy has its original's until one of them changes."""

    def of(self, account: str) -> Mapping[str, int]:
        """Amounts by resource; what was never asked for is not in it."""
        return self._sums.get(account, NONE)

    def add(self, pod: PodFacts, sign: int = 1) -> None:
        for account_of in self._accounts:
            account = account_of(pod)
            if account is not None:
                # Copies share the sums, so they are replaced and never changed.
                sums = dict(self.of(account))
                for name, amount in pod.shape.used:
                    sums[name] = sums.get(name, 0) + sign * amount
                self._sums[account] = sums
                self.state = object()

    def remove(self, pod: PodFacts) -> None:
        self.add(pod, -1)

    def copy(self) -> Usage:
        twin = Usage.__new__(Usage)
        twin._accounts, twin._sums, twin.state = self._accounts, dict(self._sums), self.state
        return twin
