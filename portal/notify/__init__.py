"""Telling what happened: events and their bell, inbox lines, mails, webhooks, and the one way out of the installation."""
