"""A database backend for when there is no database: it answers every question with how to get one."""
