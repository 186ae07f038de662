"""The Django apps: the ledger, its rules, and the pages and endpoints on top."""
