"""What another month under other rules would have been: demand is played forward through the product's own planner.

`demand` says who asks for what and how long it runs, `traces` reads it from a file; `simulation` is the clock and what becomes of
each job; `ways` are the ways of sharing that are compared; `accounting`, `figures` and `tables` are what a replay comes to. These
are pure. `history` reads demand from the database.
"""
