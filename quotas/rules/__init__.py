"""What owners and operators set, each with its refusals and its audit row: quotas, recalls, capacity, policies, draining."""
