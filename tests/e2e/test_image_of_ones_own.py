"""The platform's image, and the five lines of the documentation that put a project into it: built and run."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from slackwater.local.servers.postgres import programs
from slackwater.local.servers.redis import program
from tests.lab.matrix.moved import ROOT, SHOP, Moved
from tests.lab.matrix.servers import broker, postgres
from tests.support.runner import HOST, IMAGE, skip_without_engine

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]
FIVE_LINES = re.compile(r"(?:^    .*\n){5}", re.MULTILINE)
LIKE_COMPOSE = (
    "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true", "--tmpfs", "/tmp:exec,size=2g,mode=1777",
)  # fmt: skip


def docker(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of the engine."""
    return subprocess.run(["docker", "-H", HOST, *words], capture_output=True, text=True, check=False, timeout=1800)


class Contained(Moved):
    """The shop, each of its commands in a container of its own image."""

    label = f"slackwater-test-{secrets.token_hex(4)}"

    def _found(self, command: tuple[str, ...]) -> list[str]:
        part = ["manage", *command[2:]] if command[0] == "python" else [*command]
        if command[3:4] == ("worker",):
            part = [*command[3:]]
        seen = [str(self.logs), str(conninfo_to_dict(self.database_url)["host"])]
        given = {name: value for name, value in self.env.items() if name not in ("PATH", "HOME")}
        given |= {"DJANGO_SETTINGS_MODULE": "shop.settings", "SLACKWATER_CELERY_APP": "shop"}
        return [
            "docker", "-H", HOST, "run", "--rm", "--label", self.label, "--network", "host", *LIKE_COMPOSE,
            *(word for folder in seen for word in ("-v", f"{folder}:{folder}")),
            *(word for pair in given.items() for word in ("-e", "=".join(pair))), self.label, *part,
        ]  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The platform's image, built from the tree."""
    skip_without_engine()
    made = docker("build", "--network", "host", "--build-arg", f"BASE={IMAGE}", "-t", Contained.label + "-platform",
                  "-f", str(ROOT / "docker" / "Dockerfile"), str(ROOT))  # fmt: skip
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    yield Contained.label + "-platform"
    if left := docker("ps", "-aq", "--filter", f"label={Contained.label}").stdout.split():
        docker("rm", "-f", *left)
    docker("rmi", "-f", Contained.label, Contained.label + "-platform")


def test_five_lines_bring_a_project_and_what_it_needs(image: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    (lines,) = (found for found in FIVE_LINES.findall(page) if "FROM slackwater:latest" in found)
    with postgres(programs() / "postgres", tmp_path, "shop") as database_url, broker(program(), tmp_path) as redis_url:
        shop = Contained(SHOP, tmp_path, tmp_path, database_url=database_url, redis_url=redis_url)
        shop.move()

        def build(requirement: str) -> Any:
            (shop.folder / "requirements.txt").write_text(f"{requirement}\n")
            (shop.folder / "Dockerfile").write_text(lines.replace("    ", "").replace("slackwater:latest", image))
            return docker("build", "--network", "host", "-t", shop.label, str(shop.folder))

        refused = build("Django==5.1.1")
        assert refused.returncode != 0
        assert "django==5.1.1" in (refused.stdout + refused.stderr).lower()
        made = build("text-unidecode==1.3")
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
        for folder in (tmp_path, Path(str(conninfo_to_dict(database_url)["host"]))):
            folder.chmod(0o777)  # the image's user is another one
        shop.prepare()
        shop._run("python", "manage.py", "shell", "-c", "import text_unidecode", env=shop.env)
        shop.run()
        shop.check()
