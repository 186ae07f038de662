"""The pictures of the documents: a platform of its own, real work on it, and a browser."""
