"""The frame of every page: middleware, problems as pages, navigation, conflicting edits, confirmations."""
