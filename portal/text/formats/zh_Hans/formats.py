"""Numbers in Chinese, grouped as in English: 1,234,567.9."""

THOUSAND_SEPARATOR = ","
NUMBER_GROUPING = 3
