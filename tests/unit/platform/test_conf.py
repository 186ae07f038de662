"""The dictionary ``SLACKWATER``: defaults for everything, and nothing wrong or unknown gets in."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper

from slackwater.settings.environment import given_settings
from slackwater_conf import Conf, WrongSetting, conf


def test_every_key_has_a_default() -> None:
    assert Conf.from_mapping({}) == Conf()


def test_the_scheduler_belongs_to_the_cell() -> None:
    found = Conf.from_mapping({"CELL": "north", "SCHEDULER": {"round_limit": 7}})
    assert (found.scheduler.cell, found.scheduler.round_limit) == ("north", 7)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("CEL", "x", "is no setting"),
        ("cell", "x", "is no setting"),
        ("CELL", 1, "must be text, not int"),
        ("API_THREADS", "8", "must be a whole number, not str"),
        ("API_THREADS", True, "must be a whole number, not bool"),
        ("API_THREADS", 0, "must be greater than 0"),
        ("ALERTS_EVERY_S", "often", "must be a number, not str"),
        ("WEBHOOK_PRIVATE", 1, "must be true or false, not int"),
        ("HANDLERS", "one.module", "must be a list of texts, not str"),
        ("CAPACITY", [1, 2], "must be six numbers"),
        ("CAPACITY", [1, "2"], "must be a list of whole numbers"),
        ("ALERTS", [], "must be an object, not list"),
        ("TRACE_RATIO", 1.5, "must be from 0 to 1"),
        ("TRACE_BACKLOG", -1, "must not be negative"),
        ("REDIS_URL", "http://x", "cannot be used: it must begin with redis://, rediss://, unix:// or sentinel://"),
        ("REDIS_URL", "redis://:word@x:y/0", "cannot be used: its port must be a number from 0 to 65535"),
        ("REDIS_URL", "sentinel:///0", "cannot be used: sentinel:// names no sentinel"),
        ("TENANT", "No Such", "must be the slug of a tenant"),
        ("REDIS_URL", " ", "must not be blank"),
        ("CELL", "A B", "must be lower-case letters, digits and dashes, at most 63"),
        ("CELL", "", "must be lower-case letters"),
        ("HOST", "a b", "must be an address or the name of a host"),
        ("HOST", "", "must be an address or the name of a host"),
        ("PORT", 65_536, "must be at most 65535"),
        ("WEBHOOK_PORTS", [80, 65_536], "must be at most 65535, each"),
        ("WEBHOOK_PORTS", [-1], "must not be negative"),
        ("API_THREADS", 10**20, "must be a number, at most 2147483647"),
        ("API_MAX_BODY_BYTES", 10**20, "must be a number, at most 9223372036854775807"),
        ("ALERTS_EVERY_S", float("nan"), "must be a number, at most"),
        ("SCALE_TIMEOUT_S", float("inf"), "must be a number, at most"),
        ("SECRETS_KEYS", ["k", ""], "has an empty text"),
        ("METRICS_TOKEN", " ", "must not be blank"),
        ("EMAIL_FROM", "nobody", "must be an address of e-mail"),
        ("SCALE_WEBHOOK", "example.org", "must begin with http:// or https:// and name a host"),
        ("TRACE_ENDPOINT", "http://", "must begin with http:// or https:// and name a host"),
        ("PUBLIC_URL", "http://h:x", "must begin with http:// or https:// and name a host"),
        ("OIDC_ISSUER", "https://", "must begin with https:// and name a host"),
        ("ARTIFACTS_URL", "s3://", "must name a bucket or a folder"),
        ("SCHEDULER", {"cell": "Other Cell"}, "cannot be used: cell: must be lower-case letters"),
        ("SCHEDULER", {"key_prefix": "a b*"}, "cannot be used: key_prefix: must be letters"),
        ("SCHEDULER", {"runner": "foo"}, "cannot be used: runner: 'foo' is not unix:/PATH or tcp:HOST:PORT"),
        ("SCHEDULER", {"runner": "unix:/s"}, "cannot be used: runner_token_file: must be set beside runner"),
        ("SCHEDULER", {"sandbox": "container"}, "cannot be used: runner: must be set where sandbox is container"),
        ("SCHEDULER", {"claim_ttl_s": 0}, "cannot be used: claim_ttl_s: must be greater than 0"),
        ("SCHEDULER", {"claim_ttl_s": float("nan")}, "cannot be used: claim_ttl_s: must be a number, at most"),
        ("SCHEDULER", {"retry_base_s": float("inf")}, "cannot be used: retry_base_s: must be a number, at most"),
        ("SCHEDULER", {"peak_permille": 0}, "cannot be used: peak_permille: must be from 1 to 1000"),
        ("SCHEDULER", {"nope": 0}, "cannot be used: nope: there is no such setting"),
        ("SCHEDULER", 3, "must be an object of settings"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key(key: str, value: Any, why: str, settings: Any) -> None:
    settings.SLACKWATER = {key: value}
    with pytest.raises(WrongSetting) as caught:
        conf()
    assert str(caught.value).startswith(f'SLACKWATER["{key}"] {why}')
    assert [(found.id, found.msg) for found in run_checks(tags=["scheduler"])] == [
        ("slackwater.E002", str(caught.value))
    ]
    own = ["slackwater.E020"] if key == "ALERTS" else []  # who asks for the alerts' checks alone is told as well
    every = run_checks(include_deployment_checks=True)
    assert sorted(str(found.id) for found in every if "SLACKWATER" in found.msg) == ["slackwater.E002", *own], "once"


def test_a_module_of_handlers_that_is_nowhere_is_refused(settings: Any) -> None:
    settings.SLACKWATER = {"HANDLERS": ["tests.nope", "no.such", "tests"]}
    assert [(found.id, found.msg) for found in run_checks(tags=["handlers"])] == [
        ("slackwater.W005", "SLACKWATER_HANDLERS: there is no module 'tests.nope'"),
        ("slackwater.W005", "SLACKWATER_HANDLERS: there is no module 'no.such'"),
    ]


def test_a_ledger_that_is_nowhere_or_not_postgresql_is_refused(settings: Any) -> None:
    settings.SLACKWATER = {"LEDGER_ALIAS": "beside"}
    assert [(found.id, found.msg) for found in run_checks(tags=["ledger"])] == [
        ("slackwater.E003", "SLACKWATER[\"LEDGER_ALIAS\"] names no database of DATABASES: 'beside'")
    ]
    connections["beside"] = DatabaseWrapper({"NAME": ":memory:"}, "beside")
    try:
        (found,) = run_checks(tags=["ledger"])
    finally:
        del connections["beside"]
    assert (found.id, found.msg) == (
        "slackwater.E004", 'DATABASES["beside"] must be PostgreSQL, not sqlite: the ledger is there'
    )  # fmt: skip
    assert "LEDGER_ALIAS" in str(found.hint)
    settings.SLACKWATER = {}
    assert run_checks(tags=["ledger"]) == []


def test_another_dictionary_counts_at_once(settings: Any) -> None:
    settings.SLACKWATER = {"CELL": "one"}
    assert conf().cell == "one"
    settings.SLACKWATER = {"CELL": "two"}
    assert conf().cell == "two"
    del settings.SLACKWATER
    assert conf() == Conf()
    settings.SLACKWATER = "cell=one"
    assert [found.id for found in run_checks() if "SLACKWATER" in found.msg] == ["slackwater.E002"]
    with pytest.raises(ImproperlyConfigured, match="SLACKWATER must be a dictionary"):
        conf()


def test_the_environment_fills_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "CELL": "north", "API_THREADS": "3", "ALERTS_EVERY_S": "0.5", "WEBHOOK_PRIVATE": "true", "LABELS": "a,b",
        "CAPACITY": "1,2,3,4,5,6", "ALERTS": '{"beat": {}}', "SCHEDULER": '{"round_limit": 9}',
        "PUBLIC_URL": "http://here/", "HANDLERS": "",
    }  # fmt: skip
    for spec in fields(Conf):
        monkeypatch.delenv(f"SLACKWATER_{spec.name.upper()}", raising=False)
    for key, value in said.items():
        monkeypatch.setenv(f"SLACKWATER_{key}", value)
    found = Conf.from_mapping(given_settings())
    assert (found.cell, found.api_threads, found.alerts_every_s, found.webhook_private) == ("north", 3, 0.5, True)
    assert (found.labels, found.capacity) == (("a", "b"), (1, 2, 3, 4, 5, 6))
    assert (found.alerts, found.scheduler.round_limit) == ({"beat": {}}, 9)
    assert (found.public_url, found.handlers) == ("http://here", ())


def test_a_number_of_bytes_may_be_larger_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACKWATER_API_MAX_BODY_BYTES", "4294967296")
    assert given_settings()["API_MAX_BODY_BYTES"] == 4_294_967_296


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("SLACKWATER_TRACE_RATIO", "2", "SLACKWATER_TRACE_RATIO must be from 0 to 1"),
        ("SLACKWATER_REDIS_URL", "http://x", "SLACKWATER_REDIS_URL cannot be used: it must begin with redis://"),
        ("SLACKWATER_API_THREADS", "many", "SLACKWATER_API_THREADS must be a whole number, not 'many'"),
        ("SLACKWATER_ALERTS_EVERY_S", "abc", "SLACKWATER_ALERTS_EVERY_S must be a number, not 'abc'"),
        ("SLACKWATER_ALERTS_EVERY_S", "1e400", "SLACKWATER_ALERTS_EVERY_S must be a number, at most"),
        ("SLACKWATER_ALERTS_EVERY_S", "5s", "SLACKWATER_ALERTS_EVERY_S must be a number, not '5s'"),
        ("SLACKWATER_WEBHOOK_PRIVATE", "maybe", "SLACKWATER_WEBHOOK_PRIVATE must be true or false, not 'maybe'"),
        ("SLACKWATER_CELL", "A B", "SLACKWATER_CELL must be lower-case letters, digits and dashes"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "OTEL_EXPORTER_OTLP_ENDPOINT must begin with http"),
        ("SLACKWATER_SCHEDULER", '{"batch_max": 1000}', "SLACKWATER_SCHEDULER cannot be used: batch_max"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured, match=why):
        given_settings()
