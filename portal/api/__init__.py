"""The REST API of people, departments, tokens and events; the frame of every other API view is in base.py."""
