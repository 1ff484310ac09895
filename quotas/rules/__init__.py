"""What owners and operators set, with checks and audit entries: quotas, recalls, capacity, policies, draining."""
