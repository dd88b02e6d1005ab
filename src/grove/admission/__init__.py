"""What happens to an object before it is stored: defaults, every fault at once, and a guard on what Grove manages.

`rules` are pure functions over decoded JSON, put together by `rules.review.Admission`; `serving` and `certs` are the
thin shell that brings them to an API server.
"""
