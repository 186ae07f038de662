"""The served API against its own document, by schemathesis, as a key of each scope: a real server on real data."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from apps.resources.models import Handler
from apps.tenants.services import create_api_key, create_tenant
from tests.support.api import furnish
from tests.support.processes import running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
BIN = Path(sys.executable).parent


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Whether a server is there."""
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


@pytest.mark.parametrize("scope", ["submit", "read", "cancel", "manage"])
def test_no_answer_is_undocumented_or_broken(
    scope: str, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    furnish()
    for name in ("demo.add", "mail.send"):
        Handler.objects.create(name=name)
    tenant = create_tenant("contract", "Contract")
    tenant.plan.tasks_per_hour = tenant.plan.burst = 1_000_000
    tenant.plan.save()
    key = create_api_key(tenant, scope, (scope,))[1]
    port = free_port()
    env = {
        "SLACKWATER_DATABASE_URL": database_url,
        "SLACKWATER_REDIS_URL": redis_url,
        "SLACKWATER_VAR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "slackwater.settings.embedded",
        "PYTHONPATH": "platform:.",
    }
    server = [sys.executable, "-m", "granian", "--interface", "asgi", "--port", str(port), "--no-ws"]
    with running([*server, "slackwater.asgi:application"], env=env, name="api") as api:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), timeout=60, message="the API answers")
        command = [str(BIN / "schemathesis"), "run", f"http://127.0.0.1:{port}/api/schema/"]
        options = ["-H", f"Authorization: Bearer {key}", "-n", "40", "--no-color", "--checks", CHECKS]
        # A live stream has no end to wait for; their beginnings are compared with the document elsewhere.
        for name in ("stream_task", "stream_workflow", "stream_events"):
            options += ["--exclude-operation-id", name]
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-6000:]
        assert "Traceback" not in api.output
