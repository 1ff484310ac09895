"""Reports: what was used, lent and left idle in a period, by whom, and what it cost (docs/adr/0047)."""
