"""Departments, quotas, pools' settings, images, presets and group rules as one YAML file: exported, compared, applied."""
