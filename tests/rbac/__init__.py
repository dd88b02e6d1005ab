"""Rights against use: what the chart grants to Grove's accounts, and what an API server's audit log saw them do.

    make audit-rbac                          # the behaviour tests on real control planes, recorded, then compared
    python -m tests.rbac DIRECTORY           # compare what was recorded there

`recording` is a pytest plugin: every control plane keeps an audit log and has the chart's roles. Operator, scheduler
and metrics act as their ServiceAccounts, so a right that is missing fails the test that needs it. `rights` is the
comparison: an unused right fails it.
"""
