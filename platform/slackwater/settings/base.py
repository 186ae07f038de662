"""What all settings share. The environment is read here, once; nothing else reads it."""

import sys
from pathlib import Path
from typing import Any

import slackwater_dashboard
from slackwater import DJANGO_APPS
from slackwater.logs import FORMS, logging_config
from slackwater.settings.environment import (
    absent_database,
    celery_broker_url,
    database_from_url,
    env,
    given_database_url,
    given_settings,
    log_level,
    process_kind,
    redis_group,
)

# -- ours: what each key means stands in slackwater_conf -------------------------------------------------------
SLACKWATER: dict[str, Any] = given_settings()

# -- Django --------------------------------------------------------------------------------------------------
DEBUG = env.bool("SLACKWATER_DEBUG", default=False)
SECRET_KEY = env.str("SLACKWATER_SECRET_KEY", default="")
SECRET_KEY_FALLBACKS: list[str] = env.list("SLACKWATER_SECRET_KEY_FALLBACKS", default=[])
ALLOWED_HOSTS: list[str] = env.list("SLACKWATER_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("SLACKWATER_CSRF_TRUSTED_ORIGINS", default=[])
ASGI_APPLICATION = "slackwater.asgi.application"
WSGI_APPLICATION = "slackwater.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_SITE_APPS = (
    "unfold",  # before the admin, whose templates it replaces
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "slackwater_api",
    "slackwater_console",
)
_SITE_TABLES = ("django.contrib.admin.apps.SimpleAdminConfig", "django.contrib.sessions")  # it looks for no pages
_process = process_kind(sys.argv)
# Celery runs all checks at its start, and those of URLs would load every page.
ROOT_URLCONF = "slackwater.urls" if _process == "site" else None
INSTALLED_APPS = [
    *{"site": _SITE_APPS, "tables": _SITE_TABLES}.get(_process, ()),
    "django.contrib.auth",
    "django.contrib.contenttypes",
    *(("django_celery_beat",) if _process != "engine" else ()),
    *DJANGO_APPS,
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "slackwater_api.server.content_security.ContentSecurityPolicy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(slackwater_dashboard.__file__).parent / "templates" / "slackwater_before"],  # go before unfold's
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

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000  # boxes of a list are one field each
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
FORMAT_MODULE_PATH = "slackwater.settings.formats"
USE_I18N = False

# -- PostgreSQL ----------------------------------------------------------------------------------------------
DATABASES: dict[str, dict[str, Any]] = {
    "default": (
        database_from_url(
            _database_url,
            pooled=env.bool("SLACKWATER_DATABASE_PGBOUNCER", default=False),
            pool_size=env.int("SLACKWATER_DATABASE_POOL", default=0),
        )
        if (_database_url := given_database_url())
        else absent_database()
    )
}

# -- static files: served by the API's own process, without a collecting step --------------------------------
STATIC_URL = "static/"
STATIC_ROOT: Path | None = None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# -- Celery: the engine that lends its children; the ledger decides ------------------------------------------
CELERY_BROKER_URL = celery_broker_url(SLACKWATER["REDIS_URL"])
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_EVENT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "slackwater"
# Tokens would be all there is to see: the tasks themselves are sent by the workers.
CELERY_TASK_SEND_SENT_EVENT = False
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_DISABLE_RATE_LIMITS = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
    # A half-open link is noticed within seconds; without these it takes up to a minute.
    "socket_timeout": 10.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "health_check_interval": 10,
    # Whoever publishes to a broker that is away gives up at once and comes again: a worker's event loop must not wait.
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.2,
    "interval_max": 0.2,
}
if _group := redis_group(SLACKWATER["REDIS_URL"]):
    CELERY_BROKER_TRANSPORT_OPTIONS |= _group.broker_options()
CELERY_BEAT_SCHEDULER = "slackwater.beat:WatchingScheduler"
DJANGO_CELERY_BEAT_TZ_AWARE = True

# -- REST ----------------------------------------------------------------------------------------------------
REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["slackwater_api.http.auth.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Slackwater",
    "DESCRIPTION": "Submit work, with what it needs and how long it may wait.",
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "persistAuthorization": False, "displayRequestDuration": True},
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "slackwater_api.http.completion.complete",
    ],
    "ENUM_NAME_OVERRIDES": {
        "TaskState": "slackwater_api.v1.shapes.common.STATES",
        "TaskStatus": "slackwater_api.v1.shapes.common.STATUSES",
        "NodeState": "slackwater_api.v1.shapes.common.NODE_STATES",
        "Category": "slackwater_api.v1.shapes.common.CATEGORIES",
        "RunCondition": "slackwater_api.v1.shapes.common.CONDITIONS",
        "OnLate": "slackwater_api.v1.shapes.common.ON_LATE",
        "AttemptOutcome": "slackwater_api.v1.shapes.common.OUTCOMES",
        "TaskKind": "slackwater_api.v1.shapes.common.KINDS",
        "ScheduleKind": "slackwater_api.v1.shapes.common.KINDS_OF_SCHEDULE",
        "FireOutcome": "slackwater_api.v1.shapes.common.FIRE_OUTCOMES",
        "Scope": "slackwater_api.v1.shapes.organization.SCOPES",
        "ScopeOfKey": "slackwater_api.v1.shapes.organization.GIVEN",
    },
}

# -- mail: notifications and alerts -----------------------------------------------------------------------------
# smtp://user:password@host:587 (smtp+tls://, smtp+ssl://); by default messages are only written to the log.
_mail: dict[str, Any] = env.email_url("SLACKWATER_EMAIL_URL", default="consolemail://")
EMAIL_BACKEND = _mail["EMAIL_BACKEND"]
EMAIL_HOST, EMAIL_PORT = _mail.get("EMAIL_HOST") or "localhost", _mail.get("EMAIL_PORT") or 25
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = (_mail.get("EMAIL_HOST_USER") or "", _mail.get("EMAIL_HOST_PASSWORD") or "")
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.get("EMAIL_USE_TLS", False), _mail.get("EMAIL_USE_SSL", False)
EMAIL_FILE_PATH = _mail.get("EMAIL_FILE_PATH") or None
EMAIL_TIMEOUT = 15

# -- admin ---------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = ["slackwater_monitoring.logins.LimitedBackend"]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "Y-m-d H:i:s"


def _static(path: str) -> str:
    from django.templatetags.static import static  # loads the templates, which few processes need

    return str(static(path))


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Slackwater",
    "SITE_HEADER": "Slackwater",
    "SITE_SYMBOL": "waves",
    "SITE_URL": None,
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: _static("slackwater_dashboard/favicon.svg")}
    ],
    "STYLES": [lambda request: _static("slackwater_dashboard/slackwater.css")],
    "SCRIPTS": [
        lambda request: _static("slackwater_dashboard/names.js"),
        lambda request: _static("slackwater_dashboard/refresh.js"),
        lambda request: _static("slackwater_dashboard/further.js"),
    ],
    "DASHBOARD_CALLBACK": "slackwater_dashboard.views.dashboard_context",
    "SHOW_VIEW_ON_SITE": False,
    "BORDER_RADIUS": "6px",
    "COLORS": {
        "primary": {
            "50": "oklch(97.7% .013 236.62)",
            "100": "oklch(95.1% .026 236.824)",
            "200": "oklch(90.1% .058 230.902)",
            "300": "oklch(82.8% .111 230.318)",
            "400": "oklch(74.6% .16 232.661)",
            "500": "oklch(68.5% .169 237.323)",
            "600": "oklch(54% .148 242.3)",
            "700": "oklch(50% .134 242.749)",
            "800": "oklch(44.3% .11 240.79)",
            "900": "oklch(39.1% .09 240.876)",
            "950": "oklch(29.3% .066 243.157)",
        }
    },
    "SIDEBAR": {"show_search": True, "navigation": "slackwater_dashboard.navigation.sidebar"},
}

# -- logs ----------------------------------------------------------------------------------------------------
LOGGING = logging_config(level=log_level(), form=env.word("SLACKWATER_LOG_FORMAT", FORMS, default="console"))
