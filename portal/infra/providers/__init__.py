"""Identity providers and directories: their settings, and the clients that query them."""
