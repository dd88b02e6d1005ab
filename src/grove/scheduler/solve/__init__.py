"""Where a gang goes: the search for a good placement, and the exact search that has the last word.

    place.place(snapshot, gang, budget)  -> Placement | NoFit

Inside, in the order of a decision: `problem` (the gang against the snapshot as numbers), `bounds` (cheap proofs),
`search` over `bounds` and `fill` (good placements), `exact` over `packing` (the last word), `coupled` (pods that look
at each other; where that is hard, `tally` over `rules` and `closing` says how many go where, `order` who goes first),
`score`. `state` is the scratch pad that counts the work.
"""
