"""The ASGI application: the API, the admin and the health pages, for granian or uvicorn."""

import atexit
import gc
import os

from django.core.asgi import get_asgi_application

from slackwater.local.orphans import end_with_server
from slackwater.logs import configure_structlog

end_with_server()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "slackwater.settings.embedded")
# Requests run in threads that come and go, so connections live in a pool, not with their thread.
os.environ.setdefault("SLACKWATER_DATABASE_POOL", "16")

configure_structlog()
site = get_asgi_application()

from slackwater.wiring import heartbeat  # noqa: E402  (the same)
from slackwater_api.server import connections  # noqa: E402  (the same)
from slackwater_api.server.application import AsgiApplication  # noqa: E402  (its views need Django, which the line above sets up)

application = AsgiApplication(site)
application.warm()
connections.raise_file_limit()
connections.watch()
gc.collect()
gc.freeze()  # what is loaded stays: no search for garbage need pass through it
atexit.register(heartbeat("submitter").stop)
