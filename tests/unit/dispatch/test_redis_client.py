"""URLs of Redis: one server, or a group with sentinels."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from scheduler_ext.dispatch.redis_client import connect, group
from slackwater.settings.environment import celery_broker_url, redis_group

FULL = "sentinel://user:p%40ss@one:26380,[::1]:26381,three/4?master=main&sentinel_password=s"


def test_a_group_is_read_whole() -> None:
    found = group(FULL)
    assert found is not None
    assert found.sentinels == (("one", 26380), ("::1", 26381), ("three", 26379))
    assert (found.username, found.password, found.database) == ("user", "p@ss", 4)
    assert (found.master, found.sentinel_password) == ("main", "s")


def test_kombu_is_told_the_same() -> None:
    found = group(FULL)
    assert found is not None
    secret = "sentinel://user:p%40ss@"
    assert celery_broker_url(FULL) == f"{secret}one:26380/4;{secret}[::1]:26381/4;{secret}three:26379/4"
    options = found.broker_options()
    assert options["master_name"] == "main"
    assert options["sentinel_kwargs"]["password"] == "s"


def test_what_is_left_out_has_its_usual_value() -> None:
    found = group("sentinel://one,two")
    assert found is not None
    assert (found.master, found.password, found.database, found.sentinel_password) == (
        "mymaster",
        None,
        0,
        None,
    )
    assert celery_broker_url("sentinel://one") == "sentinel://one:26379/0"


@pytest.mark.parametrize("url", ["redis://:p@host:6379/1", "rediss://host/0", "unix:///run/redis.sock?db=1"])
def test_one_server_is_no_group(url: str) -> None:
    assert group(url) is None
    assert connect(url).connection_pool is not None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sentinel:///0", "no sentinel"), ("sentinel://one/main", "database"), ("sentinel://one?maser=x", "maser"),
        ("sentinel://one,:5", "without a host"),
    ],
)  # fmt: skip
def test_a_wrong_url_is_refused_with_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=said):
        redis_group(url)


def test_nobody_makes_a_client_past_it() -> None:
    root = Path(__file__).resolve().parents[3]
    files = [path for folder in ("apps", "scheduler_ext") for path in (root / folder).rglob("*.py")]
    files.append(root / "platform" / "slackwater" / "wiring.py")
    found = [path.name for path in files if "Redis.from_url(" in path.read_text()]
    assert found == ["redis_client.py"], "a group with sentinels would not be understood there"
