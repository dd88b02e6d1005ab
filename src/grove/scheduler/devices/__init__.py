"""Devices of resource claims: what is asked for, what there is, and who gets which. Pure."""
