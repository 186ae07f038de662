"""`manage.py up` as a newcomer meets it: real servers, real components, real signals."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from slackwater.local.supervisor import UpOptions, with_ports
from tests.support.processes import ROOT, ManagedProcess, manage, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

START = 90.0  # seconds, on a machine that runs other tests at the same time
STOP = 60.0


@pytest.fixture
def var(tmp_path: Path) -> Path:
    """In any folder, whatever it is called."""
    return tmp_path / "mein Ordner +ä" / "var"


def environment(var: Path, **more: str) -> dict[str, str]:
    """Return the environment of somebody who has nothing but a checkout."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLACKWATER_", "DJANGO_", "PYTEST_"))
    }
    return {**own, "SLACKWATER_VAR": str(var), "SLACKWATER_PORT": "0", **more}


@contextmanager
def platform(var: Path, *arguments: str, **more: str) -> Iterator[ManagedProcess]:
    """Run `up` until the end of the `with`, whatever happens in it."""
    with running(["env", "-i", *pairs(environment(var, **more)), *manage("up", *arguments)], name="up") as process:
        yield process


def pairs(env: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def url_of(output: str) -> str:
    found = re.search(r"^  Admin +(http://\S+)/admin/", output, re.MULTILINE)
    assert found, output
    return found[1]


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=20) as response:
        return response.status, response.read().decode()


def settings_in(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if line.startswith("SLACKWATER_"))


def belongings(var: Path) -> list[str]:
    """Return the command lines of all living processes that have to do with the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            mine = str(var) in line or process.environ().get("SLACKWATER_VAR") == str(var)
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(line)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_the_life_of_a_platform(var: Path) -> None:
    """First start, kill -9, second start with the same data, clean stop."""
    with platform(var) as up:
        first = up.wait_for("Slackwater is up", timeout=START)
        url = url_of(first)
        assert _the_first_task_is_accepted(var)["state"] == "succeeded"
        assert get(f"{url}/healthz")[0] == 200
        assert "unfold" in get(f"{url}/admin/login/")[1]
        assert re.search(r"name admin, password \S{10,}", first)
        demo = settings_in(var / "demo.env")
        assert demo["SLACKWATER_URL"] == url
        assert demo["SLACKWATER_KEY"] in first
        assert (var / "demo.env").stat().st_mode & 0o077 == 0
        sourced = subprocess.run(
            ["sh", "-c", f". '{var}/demo.env'; sh -c 'echo $SLACKWATER_KEY'"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert sourced.stdout.strip() == demo["SLACKWATER_KEY"]
        logs = "".join(path.read_text() for path in (var / "log").glob("*.log"))
        assert demo["SLACKWATER_KEY"] not in logs
        _a_command_beside_it_finds_the_servers(var)
        _a_second_one_in_the_same_folder_is_refused(var, up.pid)

        # It comes when the first worker is there, and so finds what it asks for.
        wait_until(lambda: _is_listening(first, "Flower"), timeout=START, message="Flower answers")
        assert "Inspect method" not in up.output
        password = (var / "flower.password").read_text()
        assert f"name admin, password {password}" in first
        assert (var / "flower.password").stat().st_mode & 0o077 == 0
        wait_until(
            lambda: _asked(first, "Flower", "/api/workers?refresh=1", password),
            timeout=START,
            message="Flower knows the worker",
        )
        assert "refused what came through Redis" not in up.output
        up.send(signal.SIGKILL)
        up.wait()
        wait_until(lambda: not belongings(var), timeout=20, message="no orphan is left")

    with platform(var) as up:
        second = up.wait_for("Slackwater is up", timeout=START)
        assert "shown this once" not in second
        assert settings_in(var / "demo.env")["SLACKWATER_KEY"] == demo["SLACKWATER_KEY"]
        up.send(signal.SIGTERM)
        assert up.wait(STOP) == 0
        assert "stopped" in up.output.splitlines()[-1]
    assert belongings(var) == []
    assert not (var / "servers.json").exists()


def _the_first_task_is_accepted(var: Path) -> dict[str, Any]:
    """What a newcomer does first, at once: the task of the README, and its end."""
    demo = settings_in(var / "demo.env")
    headers = {"Authorization": f"Bearer {demo['SLACKWATER_KEY']}", "Content-Type": "application/json"}

    def call(path: str, body: bytes | None = None) -> Any:
        asked = urllib.request.Request(f"{demo['SLACKWATER_URL']}/api/v1{path}", body, headers)
        with urllib.request.urlopen(asked, timeout=40) as response:
            return json.load(response)

    made = call("/tasks", json.dumps({"handler": "demo.add", "args": [2, 3]}).encode())
    return dict(call(f"/tasks/{made['id']}?wait=30"))


def _is_listening(output: str, name: str) -> bool:
    found = re.search(rf"^  {name} +(http://\S+)/", output, re.MULTILINE)
    assert found, output
    try:
        return get(f"{found[1]}/healthcheck")[0] == 200
    except OSError:
        return False


def _asked(output: str, name: str, path: str, password: str) -> Any:
    """What a part of the platform answers to who has its password."""
    found = re.search(rf"^  {name} +(http://\S+)/", output, re.MULTILINE)
    assert found, output
    given = {"Authorization": f"Basic {b64encode(f'admin:{password}'.encode()).decode()}"}
    with urllib.request.urlopen(urllib.request.Request(found[1] + path, headers=given), timeout=20) as response:
        return json.load(response)


def _a_command_beside_it_finds_the_servers(var: Path) -> None:
    done = subprocess.run(
        manage("showmigrations", "--plan"),
        env=environment(var),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "[ ]" not in done.stdout


def _a_second_one_in_the_same_folder_is_refused(var: Path, pid: int) -> None:
    done = subprocess.run(manage("up"), env=environment(var), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"(process {pid})" in done.stderr


@pytest.mark.slow
def test_components_and_servers_that_die_come_back(var: Path) -> None:
    with platform(var) as up:
        url = url_of(up.wait_for("Slackwater is up", timeout=START))
        servers = json.loads((var / "servers.json").read_text())
        family = up.family()
        api = next(process for process in family if "granian" in " ".join(process.cmdline()))
        postgres = next(process for process in family if "-D" in process.cmdline() and process.ppid() == up.pid)
        workers = api.children(recursive=True)
        api.kill()
        postgres.kill()
        up.wait_for("api ended (killed by SIGKILL)")
        up.wait_for("PostgreSQL ended")

        def answers() -> bool:
            try:
                with psycopg.connect(servers["SLACKWATER_DATABASE_URL"]):
                    return get(f"{url}/healthz")[0] == 200
            except (OSError, psycopg.Error):
                return False

        wait_until(answers, timeout=START, message="API and PostgreSQL answer again")
        assert workers
        assert not any(worker.is_running() for worker in workers)
        up.send(signal.SIGINT)
        assert up.wait(STOP) == 0


@pytest.mark.slow
def test_servers_of_ones_own_are_used(var: Path, transactional_db: None, database_url: str, redis_url: str) -> None:
    with platform(var, SLACKWATER_DATABASE_URL=database_url, SLACKWATER_REDIS_URL=redis_url) as up:
        said = up.wait_for("Slackwater is up", timeout=START)
        assert re.search(r"PostgreSQL +SLACKWATER_DATABASE_URL", said)
        assert not (var / "postgres").exists()
        assert _the_first_task_is_accepted(var)["state"] == "succeeded"
        assert get(f"{url_of(said)}/healthz")[0] == 200
        up.send(signal.SIGTERM)
        assert up.wait(STOP) == 0
    assert belongings(var) == []


def refused(var: Path, **more: str) -> str:
    done = subprocess.run(
        manage("up"), env=environment(var, **more), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_chosen_port_that_is_taken_is_refused_before_anything_starts(var: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 cannot be used" in refused(var, SLACKWATER_PORT=str(port))
        assert not (var / "postgres").exists()
        default = UpOptions(
            host="127.0.0.1", port=port, workers=1, concurrency=1, var=var, database_url="", redis_url="", public_url=""
        )
        with with_ports(default) as chosen:
            assert chosen.port not in {0, port}, "nobody chose it"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLACKWATER_PORT", "abc", "SLACKWATER_PORT must be a whole number"),
        (
            "SLACKWATER_DATABASE_URL",
            "mysql://me:s3cret@h/d",
            "SLACKWATER_DATABASE_URL is not a PostgreSQL URL",
        ),
        ("SLACKWATER_REDIS_URL", "http://h/", "SLACKWATER_REDIS_URL cannot be used: it must begin with redis://"),
        ("SLACKWATER_SCHEDULER", "{bad", "SLACKWATER_SCHEDULER cannot be used"),
        (
            "SLACKWATER_SCHEDULER",
            '{"peak_permille": "x"}',
            "SLACKWATER_SCHEDULER cannot be used: peak_permille",
        ),
        ("SLACKWATER_SCHEDULER", '{"order_policy": "nope"}', "there is no order policy 'nope'"),
        ("SLACKWATER_HANDLERS", "tests.nope", "SLACKWATER_HANDLERS: there is no module 'tests.nope'"),
        ("SLACKWATER_LOG_FORMAT", "xml", "SLACKWATER_LOG_FORMAT must be one of console, json, not 'xml'"),
        (
            "SLACKWATER_HOST",
            "no-such.invalid",
            "SLACKWATER_HOST is no-such.invalid, which is no address of this machine",
        ),
        ("SLACKWATER_HOST", "192.0.2.1", "SLACKWATER_HOST is 192.0.2.1, which is no address of this machine"),
        ("SLACKWATER_LEDGER_ALIAS", "beside", 'SLACKWATER["LEDGER_ALIAS"] names no database'),
        ("SLACKWATER_CAPACITY", "1,x", "SLACKWATER_CAPACITY cannot be used"),
        ("SLACKWATER_VAR", "/proc/x", "/proc/x, the folder for all data, cannot be used"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_starts(var: Path, name: str, value: str, said: str) -> None:
    """And no process of the platform dies of it again and again."""
    error = refused(var, **{name: value})
    assert said in error
    assert len(error.strip().splitlines()) <= 2, "a sentence, no traceback"
    assert "s3cret" not in error
    assert not (var / "postgres.pid").exists()


def test_a_full_disk_is_told(var: Path, tmp_path: Path) -> None:
    """Of a disk of its own, where root can have one."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(small)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        assert "the disk is full" in refused(small / "var")
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_servers_out_of_reach_are_named(var: Path) -> None:
    error = refused(var, SLACKWATER_DATABASE_URL="postgresql://u:p@127.0.0.1:1/x")
    assert "PostgreSQL at SLACKWATER_DATABASE_URL cannot be used" in error


def test_a_server_that_cannot_start_is_explained(var: Path) -> None:
    (var / "postgres").mkdir(parents=True)
    (var / "postgres" / "PG_VERSION").write_text("18")
    (var / "postgres.password").write_text("x")
    error = refused(var)
    assert "PostgreSQL did not start" in error
    assert "postgresql.conf" in error  # from the tail of its log


def test_commands_say_that_nothing_runs(var: Path) -> None:
    done = subprocess.run(
        manage("showmigrations", "--plan"), env=environment(var), capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "start it with `make up`, or set SLACKWATER_DATABASE_URL" in done.stderr
