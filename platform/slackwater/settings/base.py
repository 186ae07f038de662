"""What all settings share. The environment is read here, once; nothing else reads it."""

from logging import getLevelNamesMapping
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.templatetags.static import static

from slackwater.logs import logging_config
from slackwater.settings.environment import (
    ABSENT_REDIS_URL,
    ROOT,
    absent_database,
    celery_broker_url,
    database_from_url,
    env,
    redis_group,
    tracing,
)

# -- where this platform is ----------------------------------------------------------------------------------
VAR = Path(env.str("SLACKWATER_VAR", default=str(ROOT / "var"))).resolve()
HOST = env.str("SLACKWATER_HOST", default="127.0.0.1")
PORT = env.int("SLACKWATER_PORT", default=8000)
CELL = env.str("SLACKWATER_CELL", default="default")
PUBLIC_URL = env.str("SLACKWATER_PUBLIC_URL", default="").rstrip("/")

# -- Django --------------------------------------------------------------------------------------------------
BASE_DIR = ROOT
DEBUG = env.bool("SLACKWATER_DEBUG", default=False)
SECRET_KEY = env.str("SLACKWATER_SECRET_KEY", default="")
ALLOWED_HOSTS: list[str] = env.list("SLACKWATER_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("SLACKWATER_CSRF_TRUSTED_ORIGINS", default=[])
ROOT_URLCONF = "slackwater.urls"
ASGI_APPLICATION = "slackwater.asgi.application"
WSGI_APPLICATION = "slackwater.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "unfold",  # before the admin, whose templates it replaces
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_celery_beat",
    "slackwater_tenants",
    "slackwater_resources",
    "slackwater_tasks",
    "slackwater_schedules",
    "slackwater_monitoring",
    "slackwater_api",
    "slackwater_dashboard",
    "slackwater",
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
        "DIRS": [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
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

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False

# -- PostgreSQL ----------------------------------------------------------------------------------------------
DATABASE_URL = env.str("SLACKWATER_DATABASE_URL", default="")
DATABASES: dict[str, dict[str, Any]] = {
    "default": (
        database_from_url(
            DATABASE_URL,
            pooled=env.bool("SLACKWATER_DATABASE_PGBOUNCER", default=False),
            pool_size=env.int("SLACKWATER_DATABASE_POOL", default=0),
        )
        if DATABASE_URL
        else absent_database()
    )
}

# -- Redis: only what may vanish at any moment ---------------------------------------------------------------
REDIS_URL = env.str("SLACKWATER_REDIS_URL", default="") or ABSENT_REDIS_URL

# -- static files: served by the API's own process, without a collecting step --------------------------------
STATIC_URL = "static/"
STATIC_ROOT: Path | None = None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False

# -- Celery: the engine that lends its children; the ledger decides ------------------------------------------
CELERY_BROKER_URL = celery_broker_url(REDIS_URL)
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
if _group := redis_group(REDIS_URL):
    CELERY_BROKER_TRANSPORT_OPTIONS |= _group.broker_options()
CELERY_BEAT_SCHEDULER = "slackwater.beat:WatchingScheduler"
DJANGO_CELERY_BEAT_TZ_AWARE = True

# -- the scheduler: overrides of SchedulerConf's defaults, as JSON -------------------------------------------
SLACKWATER: dict[str, Any] = env.json("SLACKWATER_SCHEDULER", default={}) or {}
# What a node offers, where it should not be measured: CPU in thousandths, memory MiB, disk MiB, IOPS, kbit/s, ports.
NODE_CAPACITY: list[int] = env.list("SLACKWATER_CAPACITY", cast=int, default=[])
NODE_LABELS: list[str] = env.list("SLACKWATER_LABELS", default=[])
# Scripts a worker runs at once; 0: as many as it has children.
NODE_SCRIPT_SLOTS = env.int("SLACKWATER_SCRIPT_SLOTS", default=0)
# Modules of one's own that a worker imports at its start: their exported tasks can then be run for tenants.
HANDLERS: list[str] = env.list("SLACKWATER_HANDLERS", default=[])
# Export the small handlers of the demo, the imported workflows and the benchmarks (demo.*).
DEMO_HANDLERS = env.bool("SLACKWATER_DEMO_HANDLERS", default=False)

# -- tenants' secrets: the first key seals, all of them open; none given: derived from the secret key ---------
SECRETS_KEYS: list[str] = env.list("SLACKWATER_SECRETS_KEYS", default=[])

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
    "DESCRIPTION": "Hand in work, with what it needs and how long it may wait.",
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {
        "deepLinking": True,
        "persistAuthorization": False,
        "displayRequestDuration": True,
    },
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "TaskState": "slackwater_api.v1.serializers.STATES",
        "TaskStatus": "slackwater_api.v1.serializers.STATUSES",
        "NodeState": "slackwater_api.v1.serializers.NODE_STATES",
        "Category": "slackwater_api.v1.serializers.CATEGORIES",
        "RunCondition": "slackwater_api.v1.serializers.CONDITIONS",
        "OnLate": "slackwater_api.v1.serializers.ON_LATE",
        "AttemptOutcome": "slackwater_api.v1.serializers.OUTCOMES",
        "TaskKind": "slackwater_api.v1.serializers.KINDS",
        "ScheduleKind": "slackwater_api.v1.serializers.KINDS_OF_SCHEDULE",
        "FireOutcome": "slackwater_api.v1.serializers.FIRE_OUTCOMES",
    },
}
SLACKWATER_API: dict[str, Any] = {
    # Threads of one API process, each with a database connection of its own.
    "THREADS": env.int("SLACKWATER_API_THREADS", default=8),
    "MAX_BODY_BYTES": env.int("SLACKWATER_API_MAX_BODY_BYTES", default=33_554_432),
    # When it is set, /metrics is only for who sends it as a bearer token.
    "METRICS_TOKEN": env.str("SLACKWATER_METRICS_TOKEN", default=""),
}

# -- notifications -------------------------------------------------------------------------------------------
SLACKWATER_NOTIFY: dict[str, Any] = {
    # Webhooks into private networks are refused unless this says otherwise.
    "WEBHOOK_PRIVATE": env.bool("SLACKWATER_WEBHOOK_PRIVATE", default=False),
    "EMAIL_FROM": env.str("SLACKWATER_EMAIL_FROM", default="slackwater@localhost"),
}
# -- alerts to the administrators ----------------------------------------------------------------------------
SLACKWATER_ALERTS: dict[str, Any] = {
    # Changes to the rules, as JSON: {"dispatcher": {"after_s": 5}}.
    "RULES": env.json("SLACKWATER_ALERTS", default={}),
    "EVERY_S": env.float("SLACKWATER_ALERTS_EVERY_S", default=5.0),
    "EMAILS": env.list("SLACKWATER_ALERT_EMAILS", default=[]),
    "WEBHOOK": env.str("SLACKWATER_ALERT_WEBHOOK", default=""),
    "WEBHOOK_SECRET": env.str("SLACKWATER_ALERT_WEBHOOK_SECRET", default=""),
}
# smtp://user:password@host:587 (smtp+tls://, smtp+ssl://); by default messages are only written to the log.
_mail: dict[str, Any] = env.email_url("SLACKWATER_EMAIL_URL", default="consolemail://")
EMAIL_BACKEND = _mail["EMAIL_BACKEND"]
EMAIL_HOST, EMAIL_PORT = _mail.get("EMAIL_HOST") or "localhost", _mail.get("EMAIL_PORT") or 25
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = (
    _mail.get("EMAIL_HOST_USER") or "",
    _mail.get("EMAIL_HOST_PASSWORD") or "",
)
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.get("EMAIL_USE_TLS", False), _mail.get("EMAIL_USE_SSL", False)
EMAIL_FILE_PATH = _mail.get("EMAIL_FILE_PATH") or None
EMAIL_TIMEOUT = 15

# -- traces: where OpenTelemetry's own variables name a collector, those of clients are kept and completed -----
TRACES: dict[str, Any] = tracing()

# -- logins: how many proxies stand in front, each of which adds to X-Forwarded-For ----------------------------
TRUSTED_PROXIES = env.int("SLACKWATER_TRUSTED_PROXIES", default=0)
AUTHENTICATION_BACKENDS = ["slackwater_monitoring.logins.LimitedBackend"]

# -- admin ---------------------------------------------------------------------------------------------------
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
DATETIME_FORMAT = "Y-m-d H:i:s"
UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Slackwater",
    "SITE_HEADER": "Slackwater",
    "SITE_SYMBOL": "waves",
    "SITE_URL": None,
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("slackwater_dashboard/favicon.svg")}
    ],
    "STYLES": [lambda request: static("slackwater_dashboard/slackwater.css")],
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
            "600": "oklch(58.8% .158 241.966)",
            "700": "oklch(50% .134 242.749)",
            "800": "oklch(44.3% .11 240.79)",
            "900": "oklch(39.1% .09 240.876)",
            "950": "oklch(29.3% .066 243.157)",
        },
    },
    "SIDEBAR": {"show_search": True, "navigation": "slackwater_dashboard.navigation.sidebar"},
}

# -- logs ----------------------------------------------------------------------------------------------------
LOG_LEVEL = env.str("SLACKWATER_LOG_LEVEL", default="INFO").upper()
if LOG_LEVEL not in getLevelNamesMapping():
    raise ImproperlyConfigured(f"SLACKWATER_LOG_LEVEL must be one of DEBUG, INFO, WARNING, ERROR, not {LOG_LEVEL}")
LOG_FORMAT = env.str("SLACKWATER_LOG_FORMAT", default="console")
LOG_DIR = env.str("SLACKWATER_LOG_DIR", default="")
LOGGING = logging_config(level=LOG_LEVEL, form=LOG_FORMAT)
