"""Draws what people see of a cluster: `layout`, `figures` and `timeline` compute values, the others make text or SVG.

The reason why a set does not run comes from `grove.diagnosis`. The command line, the console and the demo draw with
this package, so they show the same picture.
"""
