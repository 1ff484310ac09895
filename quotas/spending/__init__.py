"""What was used in a time, from the ledger and its sums: the source of reports and budgets."""
