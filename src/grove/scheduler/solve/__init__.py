"""Where a gang goes: the search for a good placement, and the exact search that has the last word.

    place.place(snapshot, gang, budget)  -> Placement | NoFit

Inside, in the order of a decision: `problem` (the gang against the snapshot as numbers), `bounds` (cheap proofs),
`search` over `bounds` and `fill` (good placements), `exact` over `packing` (exact answers). Then `coupled` (pods with
rules about each other). Where that is hard, `tally` over `rules` and `closing` says how many go where, and `bind_order`
says which first. `placement_score` says how good the result is. `search_state` undoes tries and counts the steps.
"""
