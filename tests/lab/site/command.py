"""``make site``: the documentation as a site in ``build/site``; a broken link, or a page that nothing leads to, ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from slackwater_api.http.reference import document
from tests.lab.site import operations
from tests.lab.site.staging import ROOT, stage

STAGED = ROOT / "build" / "site-pages"


class Command(BaseCommand):
    help = "Build the documentation site, with the API reference in it; every internal link is checked."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose MkDocs builds it: it has an environment of its own, which asks for other things than the platform."""
        parser.add_argument("--python", default=sys.executable, help="the Python that has MkDocs (this one)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Stage the pages, write the reference, build."""
        stage(STAGED)
        described = document()
        reference = STAGED / "docs" / "reference"
        (reference / "openapi.json").write_text(json.dumps(described, indent=1))
        (reference / "api.md").write_text(operations.page(described))
        # Not quietly: what is not told is not counted either.
        built = subprocess.run(
            [options["python"], "-m", "mkdocs", "build", "--strict"], cwd=ROOT, check=False,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        )  # fmt: skip
        if built.returncode:
            raise CommandError("the site was not built", returncode=1)
        self.stdout.write("build/site/index.html")
