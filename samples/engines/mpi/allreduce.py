"""One allreduce over every process: each contributes its rank + 1, and each checks the sum that comes back."""

from __future__ import annotations

import socket
import sys
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
numbers = array("d", [world.rank + 1.0] * 4)
total = array("d", [0.0] * 4)
world.Allreduce(numbers, total)
expected = world.size * (world.size + 1) / 2
hosts = world.gather(socket.gethostname())
if list(total) != [expected] * 4:
    sys.exit(f"rank {world.rank}: the sum is {list(total)}, and {expected} is right")
if world.rank == 0:
    print(f"allreduce over {world.size} processes: {total[0]:.0f} on {' '.join(sorted(set(hosts or [])))}", flush=True)
