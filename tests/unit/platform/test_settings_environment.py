"""What URLs turn into."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from slackwater.settings.environment import celery_broker_url, database_from_url, env


def test_a_unix_socket_is_a_host() -> None:
    database = database_from_url("postgresql://me:s%40crt@/mine?host=%2Frun%2Fpg&port=5433", pooled=False, pool_size=0)
    assert (database["HOST"], database["PORT"], database["NAME"]) == ("/run/pg", "5433", "mine")
    assert (database["USER"], database["PASSWORD"]) == ("me", "s@crt")


def test_options_of_libpq_reach_the_connection_and_win_over_ours() -> None:
    database = database_from_url("postgresql://h/d?sslmode=require&connect_timeout=1", pooled=False, pool_size=0)
    assert database["OPTIONS"]["sslmode"] == "require"
    assert str(database["OPTIONS"]["connect_timeout"]) == "1"


def test_a_pair_is_named_by_one_url_and_who_takes_writes_is_asked_for() -> None:
    database = database_from_url("postgresql://u@first:5432,second:5433/d", pooled=False, pool_size=0)
    assert (database["HOST"], database["PORT"]) == ("first,second", "5432,5433")
    assert database["OPTIONS"]["target_session_attrs"] == "read-write"


def test_every_session_is_limited() -> None:
    options = database_from_url("postgresql://h/d", pooled=False, pool_size=0)["OPTIONS"]["options"]
    assert "idle_in_transaction_session_timeout" in options
    assert "lock_timeout" in options


def test_pgbouncer_gets_no_startup_options() -> None:
    database = database_from_url("postgresql://h/d", pooled=True, pool_size=0)
    assert "options" not in database["OPTIONS"]
    assert database["DISABLE_SERVER_SIDE_CURSORS"]


def test_a_pool_and_kept_connections_exclude_each_other() -> None:
    database = database_from_url("postgresql://h/d", pooled=False, pool_size=7)
    assert database["OPTIONS"]["pool"]["max_size"] == 7
    assert database["CONN_MAX_AGE"] == 0


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresql://h", "nonsense"])
def test_a_wrong_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="SLACKWATER_DATABASE_URL"):
        database_from_url(url, pooled=False, pool_size=0)


@pytest.mark.parametrize(
    ("given", "broker"),
    [
        ("redis://:x@h:1/2", "redis://:x@h:1/2"),
        ("unix://:x@/run/r.sock?db=3", "redis+socket://:x@/run/r.sock?virtual_host=3"),
    ],
)
def test_kombu_gets_its_own_spelling(given: str, broker: str) -> None:
    assert celery_broker_url(given) == broker


@pytest.mark.parametrize(
    ("said", "means"),
    [("true", True), ("ON", True), ("1", True), ("false", False), ("no", False), ("0", False), ("", True)],
)
def test_a_boolean_is_one_of_a_few_words(said: str, means: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_DEBUG", said)
    assert env.bool("SLACKWATER_DEBUG", default=True) is means
    monkeypatch.setenv("SLACKWATER_DEBUG", "maybe")
    with pytest.raises(ImproperlyConfigured, match=r"^SLACKWATER_DEBUG must be true or false, not 'maybe'$"):
        env.bool("SLACKWATER_DEBUG", default=True)


def test_what_fills_the_settings_of_django_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LOG_FORMAT", "xml"), ("EMAIL_URL", "foo://u:s3cret@h"), ("DATABASE_POOL", "-1")):
        monkeypatch.setenv(f"SLACKWATER_{name}", value)
    with pytest.raises(ImproperlyConfigured, match=r"^SLACKWATER_LOG_FORMAT must be one of console, json, not 'xml'$"):
        env.word("SLACKWATER_LOG_FORMAT", ("console", "json"), default="console")
    with pytest.raises(ImproperlyConfigured, match=r"^SLACKWATER_DATABASE_POOL must not be negative$"):
        env.int("SLACKWATER_DATABASE_POOL", default=0)
    for value in ("foo", "foo://u:s3cret@h", "smtp://u:s3cret@h:port", "smtp://u:s3cret@[h"):
        monkeypatch.setenv("SLACKWATER_EMAIL_URL", value)
        with pytest.raises(
            ImproperlyConfigured, match=r"^SLACKWATER_EMAIL_URL must begin with one of smtp://"
        ) as caught:
            env.email_url("SLACKWATER_EMAIL_URL", default="consolemail://")
        assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("SLACKWATER_EMAIL_URL", "")
    assert env.email_url("SLACKWATER_EMAIL_URL", default="consolemail://")["EMAIL_BACKEND"].endswith(
        "console.EmailBackend"
    )


def test_a_secret_may_begin_with_any_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_SECRET_KEY", "$2b$secret")
    assert env.str("SLACKWATER_SECRET_KEY", default="") == "$2b$secret"
