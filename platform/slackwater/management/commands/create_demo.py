"""`manage.py create_demo`: the first administrator, and two tenants to try things with, on two plans."""

import re
import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import transaction

from slackwater.settings.local import write_private
from slackwater_conf import conf
from slackwater_tenants.keys import TENANT_SCOPES
from slackwater_tenants.models import Tenant
from slackwater_tenants.price_list import DEMOS
from slackwater_tenants.services import create_api_key, create_tenant

ADMINISTRATOR = "admin"


class Command(BaseCommand):
    help = "Create the first administrator and two demo tenants with a key each, unless they exist."
    requires_system_checks = ["database", "models"]  # those of the pages would load the pages
    requires_migrations_checks = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--migrate", action="store_true", help="bring the database up to date before")
        parser.add_argument("--url", default="", help="where the API is, for var/demo.env")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["migrate"]:
            call_command("migrate", interactive=False, verbosity=0)
        self._ensure_administrator()
        url = options["url"] or conf().public_url or f"http://127.0.0.1:{conf().port}"
        for slug in DEMOS:
            self._ensure_demo_tenant(slug, Path(conf().var) / f"{slug}.env", url)

    def _ensure_administrator(self) -> None:
        users = get_user_model()
        if users.objects.filter(is_superuser=True).exists():
            return
        password = secrets.token_urlsafe(12)
        users.objects.create_superuser(ADMINISTRATOR, password=password)
        self.stdout.write(f"First administrator, shown this once: name {ADMINISTRATOR}, password {password}")

    def _ensure_demo_tenant(self, slug: str, path: Path, url: str) -> None:
        key = _key_in(path)
        with transaction.atomic():
            tenant = Tenant.objects.filter(slug=slug).first()
            if tenant is None:
                name, plan = DEMOS[slug]
                tenant = create_tenant(slug, name, plan, trusted=plan != "free")
                key = ""
            if not _is_valid(key, tenant):
                _, key = create_api_key(tenant, "demo", sorted(TENANT_SCOPES))
                self.stdout.write(
                    f"Key of the tenant {slug} (plan {tenant.plan.slug}), shown this once and kept in {path}: {key}"
                )
        write_private(path, f"SLACKWATER_URL={url}\nSLACKWATER_KEY={key}\nexport SLACKWATER_URL SLACKWATER_KEY\n")


def _key_in(path: Path) -> str:
    try:
        found = re.search(r"^SLACKWATER_KEY=(\S+)$", path.read_text(), re.MULTILINE)
    except FileNotFoundError:
        return ""
    return found[1] if found else ""


def _is_valid(key: str, tenant: Tenant) -> bool:
    from scheduler_ext.core.errors import NotAuthenticated
    from slackwater_tenants.services import authenticate

    try:
        return bool(key) and authenticate(key).tenant == tenant
    except NotAuthenticated:
        return False
