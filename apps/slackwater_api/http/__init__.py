"""The parts that every endpoint shares: authentication, bodies, problems, pages, OpenAPI."""
