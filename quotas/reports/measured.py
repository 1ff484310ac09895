"""What cards really did, of what was allocated: not measured yet.

This is the one place that reports ask. Whoever measures gives unit-seconds of activity for each row's key; what was not
measured stays None, which pages call "not measured". It is never 0.
"""

from __future__ import annotations

from quotas.reports.sums import Table


def fill_measured(table: Table) -> bool:
    """Fills `measured` of the rows. False: nothing is measured in this installation."""
    return False
