"""`make answer`: real inference software on two real nodes, told in chapters. See `__main__`."""
