"""The kinds as frozen Structs, and everything literal about the wire: names, labels, variables, conditions, quantities.

Pure: imports nothing of ours. Import what you need from its module; this one stays empty so that a short command starts
fast.
"""
