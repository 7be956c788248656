"""The steps of a check, from reading a plan to handing over a report.

The front doors (`gradlab.checks` and its siblings) call these in order; none of them is
meant to be called by a user. CONTRIBUTING.md lists what each does.
"""
