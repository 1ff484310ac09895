"""What was used in a period, from the ledger and its sums: the source of reports and budgets."""
