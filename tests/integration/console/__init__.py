"""The console of a tenant's people."""
