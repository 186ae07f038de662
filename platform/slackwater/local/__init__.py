"""The platform on one machine, as `make up` runs it: servers, components, one log, one end."""
