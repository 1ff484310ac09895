"""Backtests: what the last weeks would have been under other quotas, policies and windows. People request them, workers run
them."""
