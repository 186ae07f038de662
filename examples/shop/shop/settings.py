"""The shop's settings: apps in a folder of its own, users of its own, Celery with beat and results."""

import os

from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = "the shop's"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "people.User"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_celery_beat",
    "apps.people",
    "apps.orders",
]
_database = conninfo_to_dict(os.environ["SHOP_DATABASE"])
DATABASES = {
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": _database.pop("dbname"), "OPTIONS": _database}
}
CELERY_BROKER_URL = os.environ["SHOP_REDIS"]
CELERY_RESULT_BACKEND = os.environ["SHOP_REDIS"]
CELERY_BEAT_SCHEDULE = {
    "stock": {"task": "orders.count_stock", "schedule": float(os.environ.get("SHOP_STOCK_S", "3600"))}
}
