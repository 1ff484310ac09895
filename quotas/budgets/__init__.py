"""Budgets of GPU-hours: setting them, what that would hold, and telling people (docs/adr/0050)."""
