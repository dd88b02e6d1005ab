"""`python -m tests.rbac DIRECTORY`: fails if the chart grants a right that no recorded component used."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.rbac.held import HELD
from tests.rbac.rights import Use, accounts, documents, granted, is_used, unused, use_of


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
    idle = unused(rights, used)
    missing = [right for right in idle if str(right) not in HELD]
    stale = [text for text in HELD if text not in {str(right) for right in idle}]
    for component in sorted({right.component for right in rights}):
        mine = [right for right in rights if right.component == component]
        seen = sum(is_used(right, used) for right in mine)
        print(
            f"{component}: {len(mine)} rights, {seen} used, {len(mine) - seen} held for a reason that is written down"
        )
    for right in missing:
        print(f"granted and never used: {right}")
    for text in stale:
        print(f"said to be held without use, but used or not granted: {text}")
    print(f"{sum(used.values())} requests of Grove's accounts in {len(list(directory.glob('*.jsonl')))} audit logs")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
