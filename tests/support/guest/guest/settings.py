"""Settings of its own: an ``apps`` package, an app labelled ``tasks``, users of its own with a UUID."""

import os

import slackwater

SECRET_KEY = "a key of the guest's"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "people.User"
ROOT_URLCONF = "guest.urls"
STATIC_URL = "static/"
INSTALLED_APPS = [
    "unfold",  # before the admin
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "apps.people",
    "apps.tasks",
    *slackwater.DJANGO_APPS,
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        **{name: os.environ[f"GUEST_{name}"] for name in ("NAME", "HOST", "PORT", "USER", "PASSWORD")},
    }
}
SLACKWATER = {"REDIS_URL": os.environ["GUEST_REDIS"], "LABELS": ["guest"]}
