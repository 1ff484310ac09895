"""Budgets of GPU-hours: setting them, their states, and notifications (docs/adr/0050)."""
