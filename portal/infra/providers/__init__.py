"""Who vouches for people beside the portal: what the settings say of providers and directories, and how a directory is asked."""
