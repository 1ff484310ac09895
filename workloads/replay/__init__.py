"""Replays: simulates demand under given rules with the portal's own planner, to find what a month would have been.

`demand` is the input: the jobs, their requests and runtimes; `traces` reads it from a file. `simulation` has the clock and the
state of each job; `ways` are the ways of sharing that are compared; `accounting`, `figures` and `tables` are the results. All
these are pure. `history` reads demand and rules from the database.
"""
