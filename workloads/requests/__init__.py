"""Requests of people and pipelines: parsed, validated, previewed before submission, and written back as text."""
