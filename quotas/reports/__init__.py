"""Reports: what was used, lent and left idle over a time, by whom, and what it cost (docs/adr/0047)."""
