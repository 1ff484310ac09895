"""What owners and operators set, with its checks and audit entries: quotas, recalls, capacity, policies, draining."""
