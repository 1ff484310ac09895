"""Django's formats of numbers, where the portal's differ (FORMAT_MODULE_PATH)."""
