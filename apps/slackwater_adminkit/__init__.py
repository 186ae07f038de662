"""Shared by the admins of all apps: services' errors as messages, POST buttons, lists over millions of rows."""
