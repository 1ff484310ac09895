"""Notifications: events and their bell, the inbox, mails, webhooks, and the only way to send requests to addresses that people
entered."""
