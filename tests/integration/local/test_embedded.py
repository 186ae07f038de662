"""The embedded servers: data that stays, crashes that are survived, errors that explain themselves."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from slackwater.local.process import RunAs, tied, unprivileged
from slackwater.local.servers import EmbeddedPostgres, EmbeddedRedis, ServerError, folders, socket_folder
from tests.support.processes import running
from tests.support.waiting import wait_until

HOLDER = """
import signal, sys
from pathlib import Path
from slackwater.local.servers import EmbeddedPostgres, EmbeddedRedis, socket_folder
var = Path(sys.argv[1])
run = socket_folder(var)
with EmbeddedPostgres(var / "postgres", run) as pg, EmbeddedRedis(var / "redis", run) as rd:
    print("pids", pg.process.pid, rd.process.pid, flush=True)
    signal.pause()
"""


def test_postgres_keeps_its_data_through_stop_and_crash(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path))
    with server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    with server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("INSERT INTO t VALUES (2)")
        assert server.process.pid
        os.kill(server.process.pid, signal.SIGKILL)
        wait_until(lambda: server.process.exit_code() is not None)
        server.start()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT sum(x) FROM t").fetchone() == (3,)
            assert connection.info.server_version >= 180_000


def test_postgres_runs_in_a_folder_of_any_name() -> None:
    with tempfile.TemporaryDirectory(prefix="slack water+ä%20") as folder:
        Path(folder).chmod(0o755)
        run = socket_folder(Path(folder))
        assert run.parent == Path(folder), "it is short enough, so the socket lies there"
        with (
            EmbeddedPostgres(Path(folder) / "postgres", run, durable=False) as server,
            psycopg.connect(server.url) as connection,
        ):
            assert connection.info.host == str(run)


def test_postgres_asks_for_its_password(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path), durable=False) as server:
        host = socket_folder(tmp_path)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(host=str(host), user="slackwater", password="guess", dbname="slackwater")
        assert (tmp_path / "postgres.password").stat().st_mode & 0o077 == 0
        assert server.url.startswith("postgresql://slackwater:")


def test_redis_keeps_its_data_and_asks_for_its_password(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path / "redis", socket_folder(tmp_path))
    with server, redis.Redis.from_url(server.url) as client:
        client.set("kept", "yes")
        with redis.Redis(port=server.port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
    port = server.port
    with server, redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"yes"
        assert server.port == port
        with (
            redis.Redis(unix_socket_path=str(server.socket)) as local,
            pytest.raises(redis.AuthenticationError),
        ):
            local.ping()


def test_servers_die_with_their_parent_and_start_again(tmp_path: Path) -> None:
    with running([sys.executable, "-c", HOLDER, str(tmp_path)]) as holder:
        said = holder.wait_for("pids")
        pids = [int(word) for word in said.split("pids")[1].split()]
        servers = [psutil.Process(pid) for pid in pids]
        holder.send(signal.SIGKILL)
        holder.wait()
        _, alive = psutil.wait_procs(servers, timeout=15)
        assert alive == []
    with EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path)) as server:
        assert server.is_ready()


def test_a_second_server_on_the_same_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = socket_folder(tmp_path)
    with EmbeddedRedis(tmp_path / "redis", run, durable=False):
        second = EmbeddedRedis(tmp_path / "redis", run, durable=False)
        monkeypatch.setattr(second.process, "patience", 0.1)
        with pytest.raises(ServerError, match="still runs on the same data as process"):
            second.start()


def test_a_stale_record_with_a_reused_process_id_is_no_obstacle(tmp_path: Path) -> None:
    record = tmp_path / "redis.pid"
    record.write_text(f'{{"pid": {os.getpid()}, "started": 1.0}}')
    with EmbeddedRedis(tmp_path / "redis", socket_folder(tmp_path), durable=False) as server:
        assert server.is_ready()


def test_a_server_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path))
    with server:
        pass
    (tmp_path / "postgres" / "global" / "pg_control").unlink()
    with pytest.raises(ServerError, match=r"did not start.*(?s:.*)pg_control"):
        server.start()


def test_an_interrupted_initdb_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "postgres.new").mkdir()
    (tmp_path / "postgres.new" / "half").touch()
    with EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path), durable=False) as server:
        assert server.is_ready()


def test_data_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    folder.mkdir()
    (folder / "PG_VERSION").write_text("16\n")
    (tmp_path / "postgres.password").write_text("x")
    with pytest.raises(ServerError, match="written by PostgreSQL 16"):
        EmbeddedPostgres(folder, socket_folder(tmp_path)).start()


def test_data_without_its_password_is_refused(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    with pytest.raises(ServerError, match=r"postgres\.password is missing"):
        EmbeddedPostgres(tmp_path / "postgres", socket_folder(tmp_path)).start()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MIN_FREE_BYTES", 2**62)
    with pytest.raises(ServerError, match="the disk is full"):
        EmbeddedRedis(tmp_path / "redis", socket_folder(tmp_path)).start()


def test_a_deep_folder_gets_its_sockets_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 6)
    deep.mkdir(parents=True)
    run = socket_folder(deep)
    try:
        assert len(str(run)) < 80
        assert run == socket_folder(deep)
        with EmbeddedPostgres(deep / "postgres", run, durable=False) as server:
            assert server.is_ready()
    finally:
        run.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives up powers")
@pytest.mark.parametrize("run_as", [RunAs.NAMESPACE, RunAs.NOBODY])
def test_what_runs_for_root_holds_no_powers(run_as: RunAs) -> None:
    if run_as is RunAs.NAMESPACE and unprivileged() is RunAs.NOBODY:
        pytest.skip("user namespaces are refused on this machine")
    show = "import os; print(os.geteuid(), [l for l in open('/proc/self/status') if l.startswith('CapEff')])"
    done = subprocess.run(
        tied(
            ["/usr/bin/env", "python3", "-I", "-S", "-c", show] if run_as is RunAs.NAMESPACE else ["id", "-u"],
            run_as=run_as,
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("65534")
    if run_as is RunAs.NAMESPACE:
        assert "0000000000000000" in done.stdout


def test_a_child_of_a_dead_parent_does_not_start() -> None:
    command = tied(["true"])
    command[5] = "1"  # as if the parent had died in between, and init had taken over
    assert subprocess.run(command, check=False).returncode == 98
