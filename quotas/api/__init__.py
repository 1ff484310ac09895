"""The REST API of quotas: guaranteed quota, use, loans, recalls and decisions. Amounts come with their `unit`."""
