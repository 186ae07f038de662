"""The servers of a test run, as a pytest plug-in that is loaded before Django reads its settings.

One PostgreSQL for the whole run, started by the process that distributes the tests; each worker has a
database of its own in it. One Redis for each worker, so that a test may empty it, and hear nothing that
others publish. Where the two URLs are given (`make test-external`), those servers are used: a database for
each run and worker, a numbered Redis database for each worker, which the tests empty.
"""

import contextlib
import gc
import os
import secrets
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from slackwater.local.servers import EmbeddedPostgres, EmbeddedRedis, socket_folder
from tests.support import zygote

OWNED = contextlib.ExitStack()
WITHOUT_SERVERS = ("--help", "-h", "--version", "-V", "--fixtures", "--markers", "--collect-only", "--co")


def worker_number() -> int:
    """Return the number of this xdist worker; 0 when the tests are not distributed."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def _bears_workers() -> bool:
    return zygote.POSSIBLE and Path.cwd() == zygote.ROOT


def _use_external_servers() -> None:
    os.environ["SLACKWATER_TEST_EXTERNAL"] = "1"
    # Database 0 is left to whoever shares the server.
    url = urlsplit(os.environ["SLACKWATER_REDIS_URL"])
    os.environ["SLACKWATER_REDIS_URL"] = urlunsplit(url._replace(path=f"/{worker_number() + 1}"))


def _start_servers(*, distributed: bool) -> None:
    # What a test starts believes what it is told by the test's own process.
    os.environ.setdefault("SLACKWATER_SECRET_KEY", "only-for-tests-" + "x" * 40)
    given = {"SLACKWATER_DATABASE_URL", "SLACKWATER_REDIS_URL"} <= os.environ.keys()
    if not _is_worker():
        os.environ["SLACKWATER_TEST_RUN"] = secrets.token_hex(4)
        if distributed and _bears_workers():
            zygote.start({**os.environ, "DJANGO_SETTINGS_MODULE": zygote.SETTINGS})  # it imports meanwhile
    if "SLACKWATER_TEST_EXTERNAL" in os.environ or (given and not _is_worker()):
        _use_external_servers()
        return
    folder = Path(OWNED.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-tests-")))
    run = socket_folder(folder)
    if not _is_worker():
        postgres = EmbeddedPostgres(folder / "postgres", run, durable=False)
        os.environ["SLACKWATER_DATABASE_URL"] = OWNED.enter_context(postgres).url
    redis = OWNED.enter_context(EmbeddedRedis(folder / "redis", run, durable=False))
    os.environ["SLACKWATER_REDIS_URL"] = redis.url
    # Nothing that a test starts may touch the data of a platform that runs in this folder.
    os.environ["SLACKWATER_VAR"] = str(folder / "var")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None, None, None]:
    """Start the servers before pytest-django, which acts inside this hook, loads the settings."""
    # What one process has compiled, the hundreds that follow need not compile again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if not set(WITHOUT_SERVERS) & set(args):
        _start_servers(distributed=bool(getattr(early_config.known_args_namespace, "numprocesses", 0)))
    with _nothing_thrown_away():
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Fork the workers, so that all that they import is imported once."""
    if _bears_workers():
        zygote.bear_workers()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import every test."""
    with _nothing_thrown_away():
        return (yield)


@contextlib.contextmanager
def _nothing_thrown_away() -> Iterator[None]:
    """Have no garbage looked for among what is imported, neither meanwhile nor ever after: two seconds a process."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Stop what this process started, after the last test."""
    zygote.end()
    if "SLACKWATER_TEST_EXTERNAL" in os.environ and not _is_worker():
        from tests.support.database import drop_template

        drop_template()
    OWNED.close()
