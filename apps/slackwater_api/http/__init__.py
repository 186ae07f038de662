"""What every endpoint shares: authentication, bodies, problems, pages, OpenAPI."""
