"""What a key that only reads is not shown."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater_api.http.blotting import blotted

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"kwargs": {"password": "x", "to": "a@b.org"}}, {"kwargs": {"password": "***", "to": "a@b.org"}}),
        ({"args": [{"env": {"DB_PASSWORD": "x", "STRIPE_API_KEY": 1, "HOME": "/"}}]},
         {"args": [{"env": {"DB_PASSWORD": "***", "STRIPE_API_KEY": "***", "HOME": "/"}}]}),
        ({"kwargs": {"headers": {"Authorization": "Bearer abcdefgh", "Accept": "*/*"}}},
         {"kwargs": {"headers": {"Authorization": "***", "Accept": "*/*"}}}),
        ({"args": [f"use {JWT} now", "Bearer abcdefgh1234", "postgres://u:hush@db/x"]},
         {"args": ["use *** now", "***", "postgres://***@db/x"]}),
        ({"error": "login failed: password=hush, host=db"}, {"error": "login failed: password***, host=db"}),
        ({"url": "https://hooks.example.org/T0/B1?k=2"}, {"url": "https://hooks.example.org/***"}),
        ({"url": "https://example.org"}, {"url": "https://example.org"}),
        ({"items": [{"args": ["sk_live_0123456789abcdef"], "state": "ready"}], "next_cursor": "x"},
         {"items": [{"args": ["***"], "state": "ready"}], "next_cursor": "x"}),
        # What is none stays: names of ours, what says only whether, and words that merely sound so.
        ({"idempotency_key": "k", "mutex_key": "m", "key": {"id": "9f3a61c0"}}, None),
        ({"kwargs": {"has_token": True, "password": None, "monkey": 1, "author": "Ann", "spin": 2}}, None),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_blotted_out(given: Any, shown: Any) -> None:
    assert blotted(given) == (given if shown is None else shown)
