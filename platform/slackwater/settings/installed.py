"""Settings of a Celery application without Django of its own: what ``slackwater.install`` was given, and no pages."""

from slackwater import DJANGO_APPS
from slackwater.settings.base import *

INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_celery_beat", *DJANGO_APPS]
ROOT_URLCONF = None
LOGGING_CONFIG = None  # the application's own stays
