"""PostgreSQL and a Redis-compatible server out of wheels, under our own supervision.

For one machine: `make up` and the tests. Their data is as durable as any, fsync included; what they lack is a
second machine.
"""

from slackwater.local.servers.folders import socket_folder
from slackwater.local.servers.postgres import EmbeddedPostgres
from slackwater.local.servers.redis import EmbeddedRedis
from slackwater.local.servers.server import ServerError

__all__ = ["EmbeddedPostgres", "EmbeddedRedis", "ServerError", "socket_folder"]
