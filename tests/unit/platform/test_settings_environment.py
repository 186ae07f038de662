"""What URLs turn into."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from slackwater.settings.environment import celery_broker_url, database_from_url


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
