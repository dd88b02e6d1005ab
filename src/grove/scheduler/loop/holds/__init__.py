"""Makes and ends holds. The ledger itself is `policy/hold_ledger.py`.

long_wait_holds          for units that wait long
nominations              for units whose victims terminate
replacements             for pods that are being replaced
replacement_answers      whether replacements would have a place, for the operator
headrooms                for further replicas of a set
pending_reservations     for Reservations that wait for a place
holds_behind             ends holds of units behind a unit that takes their capacity
hold_restorer            reads back what an earlier scheduler held
"""
