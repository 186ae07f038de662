"""The REST interface: authentication, errors, pagination, and one package per version."""
