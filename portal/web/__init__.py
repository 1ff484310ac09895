"""The frame of every page: middleware, problems as pages, navigation, forms that came too late, confirmations."""
