"""Departments, quotas, settings of pools, images, presets and group rules as one YAML file: exported, compared, applied."""
