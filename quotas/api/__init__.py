"""The REST API of quotas: guaranteed quota, use, loans, recalls and decisions. Amounts are accompanied by their
`unit`."""
