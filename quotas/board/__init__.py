"""What is used, lent and waiting, now and over time, for pages, API and metrics; and consistency checks."""
