"""The REST API of quotas: what is promised, used, lent, recalled and decided. Amounts stand beside their `unit`."""
