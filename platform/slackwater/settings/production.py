"""Settings of a server on a network: everything that has no safe default must be given."""

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from slackwater.logs import FORMS, logging_config
from slackwater.settings.base import *
from slackwater.settings.environment import env, given_database_url, log_level
from slackwater.settings.place import home_folder

for _name, _value in (
    ("SLACKWATER_SECRET_KEY", SECRET_KEY),
    ("SLACKWATER_DATABASE_URL", given_database_url()),
    ("SLACKWATER_REDIS_URL", env.str("SLACKWATER_REDIS_URL", default="")),
    ("SLACKWATER_ALLOWED_HOSTS", env.str("SLACKWATER_ALLOWED_HOSTS", default="")),
):
    if not _value:
        raise ImproperlyConfigured(f"{_name} must be set in production")

DEBUG = False
LOGGING = logging_config(level=log_level(), form=env.word("SLACKWATER_LOG_FORMAT", FORMS, default="json"))

# TLS ends at the proxy, which says so in this header and must strip it from what clients send.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = env.bool("SLACKWATER_SSL_REDIRECT", default=True)
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]  # asked inside the network, without TLS
SECURE_HSTS_SECONDS = env.int("SLACKWATER_HSTS_SECONDS", default=31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = True
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_SECURE = True
X_FRAME_OPTIONS = "DENY"

# The image collects the static files when it is built.
STATIC_ROOT = Path(env.str("SLACKWATER_STATIC_ROOT", default=str(home_folder() / "staticfiles")))
WHITENOISE_USE_FINDERS = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
