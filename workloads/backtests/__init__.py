"""What the last weeks would have been under other quotas, policies and windows: asked by people, played by workers."""
