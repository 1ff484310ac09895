"""What is used, lent and waiting now and over time, read for pages, API and metrics; and whether the records agree."""
