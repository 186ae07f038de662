"""What the platform writes, and what other users of the machine see of it: files, command lines, sockets, terminals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from slackwater.settings.place import ROOT
from tests.lab.attack.ground import Ground
from tests.lab.attack.probes import probe

PAGE = ROOT / "docs" / "security.md"
ROW = re.compile(r"^\| `(\S+)` \| `(\S+)`", re.MULTILINE)


def _processes(ground: Ground) -> Iterator[psutil.Process]:
    up = psutil.Process(ground.process.pid)
    yield from (up, *up.children(recursive=True))


def _secrets(ground: Ground) -> set[str]:
    found = {path.read_text().strip() for path in ground.var.glob("*.password")}
    found |= {(ground.var / "secret_key").read_text().strip(), ground.setting("SLACKWATER_KEY")}
    found |= {urlsplit(ground.setting(f"SLACKWATER_{name}_URL")).password or "" for name in ("REDIS", "DATABASE")}
    found |= set(re.findall(r"password (\S{10,})", ground.printed))
    return found - {""}


@probe("files", expected="none")
def files_that_others_can_read(ground: Ground) -> str:
    """Another user of the machine looks for files and folders of the platform's that are open to all."""
    paths = [ground.var, *ground.var.rglob("*")]
    opened = [str(path) for path in paths if not path.is_symlink() and path.stat().st_mode & 0o077]
    return ", ".join(opened) or "none"


@probe("files", expected="none")
def passwords_on_command_lines(ground: Ground) -> str:
    """Another user of the machine reads the command lines of all processes."""
    secrets = _secrets(ground)
    if len(secrets) < 4:
        return f"only {len(secrets)} secrets are known here"
    seen = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if any(secret in line for secret in secrets):
            seen.append(process.name())
    return ", ".join(seen) or "none"


@probe("files", expected="none")
def passwords_in_logs(ground: Ground) -> str:
    """Somebody is sent the logs of the components."""
    secrets = _secrets(ground)
    told = [path.name for path in (ground.var / "log").glob("*.log*") if any(s in path.read_text() for s in secrets)]
    return ", ".join(told) or "none"


@probe("files", expected="refused, and nothing raw")
def text_that_steers_a_terminal(ground: Ground) -> str:
    """A tenant names things with escape sequences and line breaks, and submits more of them as arguments."""
    evil = "\x1b]0;PWNED\x07\x1b[2J\nFAKE LINE level=error\u202e\x9b"
    headers = {"Content-Type": "application/json"}

    def ask(path: str, method: str, body: object) -> int:
        return ground.ask(path, method, body=json.dumps(body).encode(), key=True, headers=headers).status

    taken = [
        f"{path} {field}"
        for path, method, field, body in (
            ("/api/v1/tasks", "POST", "name", {"handler": "demo.echo", "name": evil}),
            ("/api/v1/tasks", "POST", "tags", {"handler": "demo.echo", "tags": [evil]}),
            ("/api/v1/tasks", "POST", "mutex_key", {"handler": "demo.echo", "mutex_key": evil}),
            ("/api/v1/organization", "PATCH", "name", {"name": evil}),
            ("/api/v1/teams", "POST", "name", {"slug": "evil", "name": evil}),
            ("/api/v1/keys", "POST", "name", {"name": evil, "scopes": ["read"]}),
            ("/api/v1/schedules", "POST", "name", {"name": evil, "every_s": 60, "task": {"handler": "demo.echo"}}),
        )
        if ask(path, method, body) != 422
    ]
    ask("/api/v1/tasks", "POST", {"handler": "demo.echo", "args": [evil]})
    raw = [path.name for path in (ground.var / "log").glob("*.log") if "\x1b" in path.read_text()]
    if "\x1b]0;" in ground.printed or "\nFAKE LINE" in ground.printed:
        raw.append("the console")
    return "refused, and nothing raw" if not taken + raw else ", ".join(taken + raw)


@probe("files", expected="as docs/security.md says")
def doors_that_nobody_told_of(ground: Ground) -> str:
    """All sockets on which a process of the platform listens are looked up, and compared with the documentation."""
    told = dict(ROW.findall(PAGE.read_text().partition("## What listens")[2]))
    found: dict[str, str] = {}
    for process in _processes(ground):
        for one in process.net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                found[_part(process)] = one.laddr.ip
        for one in process.net_connections("unix"):
            if one.laddr and _listens(str(one.laddr)):
                found[f"{_part(process)}-socket"] = _place(ground, str(one.laddr))
    return "as docs/security.md says" if found == told else f"{found}, not {told}"


def _part(process: psutil.Process) -> str:
    line = " ".join(process.cmdline())
    words = (("flower", "flower"), ("granian", "api"), ("valkey", "redis"), ("postgres", "postgresql"))
    return next((part for word, part in words if word in line), line)


def _listens(path: str) -> bool:
    lines = Path("/proc/net/unix").read_text().splitlines()
    # The flags of a listening socket have SO_ACCEPTCON, 0x10000.
    return any(line.endswith(f" {path}") and line.split()[3] == "00010000" for line in lines)


def _place(ground: Ground, path: str) -> str:
    return path.replace(str(ground.var), "var").replace(f"/{Path(path).name}", "/")
