"""`python -m tests.rbac DIRECTORY`: fails if the chart grants a right that no recorded component used."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.rbac.held import reason
from tests.rbac.rights import Use, accounts, documents, granted, unused, use_of


def recorded(directory: Path) -> Iterator[Use]:
    users, decode = accounts(documents()), msgspec.json.Decoder().decode
    for file in sorted(directory.glob("*.jsonl")):
        with file.open("rb") as lines:
            for line in lines:
                try:
                    found = use_of(decode(line), users)
                except msgspec.DecodeError:
                    continue  # the last line of a server that was killed
                if found is not None:
                    yield found


def main() -> int:
    directory = Path(sys.argv[1])
    used, rights = Counter(recorded(directory)), sorted(set(granted(documents())))
    idle = set(unused(rights, used))
    for component in sorted({right.component for right in rights}):
        mine = [right for right in rights if right.component == component]
        held = sum(right in idle and bool(reason(right)) for right in mine)
        seen = sum(right not in idle for right in mine)
        print(f"{component}: {len(mine)} rights, {seen} used, {held} held for reasons that tests/rbac/held.py gives")
    missing = sorted(right for right in idle if not reason(right))
    for right in missing:
        print(f"granted and never used: {right}")
    print(f"{sum(used.values())} requests of Grove's accounts in {len(list(directory.glob('*.jsonl')))} audit logs")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
