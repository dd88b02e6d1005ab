"""`make answer`: real inference software on two real nodes, in chapters. See `__main__`."""
