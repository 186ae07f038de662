"""The documentation as a site: the pages of the repository as they link each other, and the API's operations."""
