"""Pages of quotas, one module for each subject."""
