"""What happens to an object before it is stored: defaults, every fault at once, and a guard on what Grove manages.

The rules are pure functions over decoded JSON (`defaulting`, `rules_*`, `podspec`, `feasibility`, `authorizer`), put
together by `review.Admission`. `server`, `certs` and `registration` are the thin shell that serves them to an API
server.
"""
