"""The console of a tenant's people: pages that ask the views of the REST interface, each person within its role."""
