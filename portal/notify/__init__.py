"""Notifications: events and their bell, the inbox, mails, webhooks, and the one way out of the installation."""
