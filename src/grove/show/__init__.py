"""What people see of a cluster: pictures made from API objects, as plain values first and as text after that.

`seen` is what was read, `tree` and `layout` are pure functions from it to values (`-o json` prints those), `words` and
`paint` put them on a terminal. The command line and the demo share it, so both show the same picture.
"""
