"""Work outside requests: hints to the watcher and workers, scheduled jobs, and the demo's threads."""
