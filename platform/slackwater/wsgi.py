"""The WSGI application, for servers that speak no ASGI; live streams need ASGI."""

import os

from django.core.wsgi import get_wsgi_application

from slackwater.logs import configure_structlog

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "slackwater.settings.embedded")

configure_structlog()
application = get_wsgi_application()
