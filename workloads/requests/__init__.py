"""Requests of people and pipelines: parsed, checked, judged before submission, and written back as text."""
