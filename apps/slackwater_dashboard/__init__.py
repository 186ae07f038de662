"""The admin's live pages."""
