"""Settings of the tests: a database of their own for each run and worker, a fast password hash."""

from slackwater.logs import logging_config
from slackwater.settings.base import *
from slackwater.settings.environment import env

SECRET_KEY = SECRET_KEY or "only-for-tests-" + "x" * 40
DEBUG = False
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
LOGGING = logging_config(level="WARNING", form="console")

# Two runs on one server of one's own must not meet; pytest-django adds the worker's name to it.
DATABASES["default"].setdefault("TEST", {})["NAME"] = "test_slackwater_" + env.str(
    "SLACKWATER_TEST_RUN", default="alone"
)

# Each client of a test makes the middleware anew, which would look for every static file there is: 30 ms.
WHITENOISE_AUTOREFRESH = True

SLACKWATER["DEMO_HANDLERS"] = True
