"""Work outside requests: hints to watcher and workers, scheduled jobs, and the demo's threads."""
