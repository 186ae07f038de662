"""The admin's pages of clients and resources, and who may do what."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from scheduler_ext.core.errors import NotAuthenticated
from scheduler_ext.core.states import TaskState
from slackwater_resources.models import Handler, Tier
from slackwater_tasks.models import LiveTask, Task
from slackwater_tenants.models import ApiKey, Membership, Plan, Team, Tenant, TenantCounter
from slackwater_tenants.price_list import PLANS
from slackwater_tenants.services import authenticate, create_tenant
from tests.support.admin import act, add_form, form_of, press, said, staff, state, submit
from tests.support.api import HANDLER
from tests.support.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("furnished")]


class TestClients:
    """Tenants and their keys."""

    def test_a_new_tenant_has_its_counter(self, page: Client) -> None:
        plan = Plan.objects.create(slug="gold", name="Gold")
        form = {
            "slug": "initech", "name": "Initech", "plan": plan.pk, "cell": "default", "trusted": "on",
            "script_root": "/srv/initech", "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
            "teams-TOTAL_FORMS": "0", "teams-INITIAL_FORMS": "0",
        }  # fmt: skip
        response = page.post(reverse("admin:slackwater_tenants_tenant_add"), form)
        assert response.status_code == 302, response.context["adminform"].form.errors
        made = Tenant.objects.get(slug="initech")
        assert (made.plan, made.trusted, made.script_root) == (plan, True, "/srv/initech")
        assert TenantCounter.objects.filter(tenant=made).exists()

    def test_what_the_service_refuses_stays_in_the_form(self, page: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """A slug taken between the form's check and the service's: the form comes back filled in."""
        from slackwater_tenants import admin as tenants_admin

        taken = create_tenant("taken", "Taken")
        monkeypatch.setattr(tenants_admin.TenantForm, "validate_unique", lambda self: None)
        form = {
            "slug": "taken", "name": "Second", "plan": taken.plan_id, "cell": "default",
            "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
            "teams-TOTAL_FORMS": "0", "teams-INITIAL_FORMS": "0",
        }  # fmt: skip
        response = page.post(reverse("admin:slackwater_tenants_tenant_add"), form)
        assert response.status_code == 200
        errors = response.context["adminform"].form.errors["slug"]
        assert list(errors) == ["slug: the tenant 'taken' exists already"]
        assert response.context["adminform"].form["name"].value() == "Second"

    @pytest.mark.parametrize("slug", PLANS)
    def test_a_plan_that_ships_is_saved_as_its_page_shows_it(self, page: Client, slug: str) -> None:
        plan, _ = Plan.objects.get_or_create(slug=slug, defaults=PLANS[slug])
        url = reverse("admin:slackwater_tenants_plan_change", args=[plan.pk])
        response = page.post(url, form_of(page, url, weight="7"))
        assert response.status_code == 302, response.context["adminform"].form.errors
        before, after = Plan.objects.filter(pk=plan.pk).values().get(), vars(plan)
        assert {name for name, value in before.items() if value != after[name]} == {"weight"}

    def test_pausing_and_resuming(self, page: Client, tenant: Tenant) -> None:
        press(page, "slackwater_tenants_tenant", tenant.pk, "pause")
        assert Tenant.objects.get(pk=tenant.pk).paused
        assert "1 refused" in said(act(page, "slackwater_tenants_tenant", "pause", tenant.pk))
        assert "1 resumed" in said(act(page, "slackwater_tenants_tenant", "resume", tenant.pk))
        assert not Tenant.objects.get(pk=tenant.pk).paused

    def test_a_key_is_shown_once_and_works(self, page: Client, tenant: Tenant) -> None:
        form = {"tenant": tenant.pk, "name": "ci", "scopes": ["submit", "read"]}
        response = page.post(reverse("admin:slackwater_tenants_apikey_add"), form)
        assert response.status_code == 200
        found = re.search(r'id="api-key">(sw_[^<]+)<', response.content.decode())
        assert found is not None
        key = authenticate(found[1])
        assert (key.tenant, key.scopes) == (tenant, ["read", "submit"])
        assert "no-store" in response["Cache-Control"]
        secret = found[1].split("_", 2)[2]  # it may have one in it, too
        for url in (
            reverse("admin:slackwater_tenants_apikey_changelist"),
            reverse("admin:slackwater_tenants_apikey_change", args=[key.pk]),
        ):
            assert secret not in page.get(url).content.decode()
        assert secret not in str(page.cookies)
        assert "revoked" in said(press(page, "slackwater_tenants_apikey", key.pk, "revoke"))
        with pytest.raises(NotAuthenticated):
            authenticate(found[1])

    def test_only_those_who_may_change_nodes_let_a_key_do_it(
        self, page: Client, tenant: Tenant, django_user_model: Any
    ) -> None:
        form = {"tenant": tenant.pk, "name": "nodes", "scopes": ["operate"]}
        clerk = django_user_model.objects.create_user("clerk", password="x", is_staff=True)
        clerk.user_permissions.set(Permission.objects.filter(codename__in=["add_apikey", "view_apikey"]))
        other = Client()
        other.force_login(clerk)
        response = other.post(reverse("admin:slackwater_tenants_apikey_add"), form)
        assert "operate" in str(response.context["adminform"].form.errors["scopes"])
        assert not ApiKey.objects.exists()
        assert page.post(reverse("admin:slackwater_tenants_apikey_add"), form).status_code == 200
        assert ApiKey.objects.get().scopes == ["operate"]

    def test_a_key_that_is_born_expired_is_refused_at_its_field(self, page: Client, tenant: Tenant) -> None:
        form = {
            "tenant": tenant.pk,
            "name": "x",
            "scopes": ["read"],
            "expires_at_0": "2001-01-01",
            "expires_at_1": "00:00",
        }
        response = page.post(reverse("admin:slackwater_tenants_apikey_add"), form)
        assert "expires_at" in response.context["adminform"].form.errors
        assert not ApiKey.objects.exists()


class TestResources:
    """Nodes, handlers, lines."""

    def test_draining_and_activating_a_node(self, page: Client) -> None:
        node = HandWorker().node
        press(page, "slackwater_resources_node", node.pk, "drain")
        node.refresh_from_db()
        assert node.state == "draining"
        assert "1 refused" in said(act(page, "slackwater_resources_node", "drain", node.pk))
        act(page, "slackwater_resources_node", "activate", node.pk)
        node.refresh_from_db()
        assert node.state == "active"
        type(node).objects.update(state="lost")
        assert "lost, not draining" in said(press(page, "slackwater_resources_node", node.pk, "activate"))

    def test_pausing_a_handler(self, page: Client) -> None:
        handler = Handler.objects.get(name=HANDLER)
        press(page, "slackwater_resources_handler", handler.pk, "pause")
        handler.refresh_from_db()
        assert handler.paused

    def test_pausing_a_line(self, page: Client, tenant: Tenant) -> None:
        submit(tenant)
        line = LiveTask.objects.unscoped().get().line
        press(page, "slackwater_tasks_line", line.pk, "pause")
        line.refresh_from_db()
        assert line.paused
        assert "1 resumed" in said(act(page, "slackwater_tasks_line", "resume", line.pk))
        line.refresh_from_db()
        assert not line.paused

    def test_a_tier_of_a_tenants_own(self, page: Client, tenant: Tenant) -> None:
        form = {
            "slug": "huge", "tenant": tenant.pk, "cpu_milli": "16 cores", "memory_mb": "64 GiB", "disk_mb": "0",
            "iops": "0", "bandwidth_kbps": "0", "ports": "0", "default_cap_s": "1.5 h",
            "price_micros_per_hour": "0.25",
        }  # fmt: skip
        assert page.post(reverse("admin:slackwater_resources_tier_add"), form).status_code == 302
        tier = Tier.objects.get(slug="huge")
        assert (tier.tenant, tier.cpu_milli, tier.memory_mb) == (tenant, 16_000, 65_536)
        assert (tier.default_cap_s, tier.price_micros_per_hour) == (5_400, 250_000)
        shown = page.get(reverse("admin:slackwater_resources_tier_changelist")).text
        assert ("16 cores" in shown, "64 GiB" in shown, "1.5 h" in shown) == (True, True, True)
        response = page.post(
            reverse("admin:slackwater_resources_tier_add"), {**form, "slug": "odd", "memory_mb": "2 cups"}
        )
        assert "units: MiB, GiB, TiB" in str(response.context["adminform"].form.errors["memory_mb"])

    def test_a_plan_is_told_in_percent_sizes_and_times(self, page: Client, tenant: Tenant) -> None:
        url = reverse("admin:slackwater_tenants_plan_change", args=[tenant.plan_id])
        form = page.get(url).context["adminform"].form
        sent = {name: form[name].value() for name in form.fields}
        assert (sent["max_artifact_bytes"], sent["maximum_permille"], sent["max_cap_s"]) == ("16 MiB", "100 %", "1 d")
        assert "urgent: 100 %" in sent["price_permille"]
        given = {name: value for name, value in sent.items() if value not in (None, False)} | {
            "maximum_permille": "12.5", "max_upload_bytes": "1.5 GiB", "delay_tolerance_s": "urgent: 5 s\ndelayable: 2 h",
        }  # fmt: skip
        response = page.post(url, {name: ",".join(v) if isinstance(v, list) else v for name, v in given.items()})
        assert response.status_code == 302, response.context["adminform"].form.errors
        plan = Plan.objects.get(pk=tenant.plan_id)
        assert (plan.maximum_permille, plan.max_upload_bytes) == (125, 1_610_612_736)
        assert plan.delay_tolerance_s == {"urgent": 5, "delayable": 7_200}
        assert "from 100 % to 12.5 %" in LogEntry.objects.latest("pk").change_message


class TestPermissions:
    """Django's model permissions hold for every button, action and number."""

    def test_a_viewer_sees_and_changes_nothing(self, tenant: Tenant) -> None:
        task_id = submit(tenant)
        viewer = staff("slackwater_tasks.view_task")
        text = viewer.get(reverse("admin:slackwater_tasks_task_change", args=[task_id])).content.decode()
        assert "/do/cancel/" not in text
        assert press(viewer, "slackwater_tasks_task", task_id, "cancel").status_code == 403
        act(viewer, "slackwater_tasks_task", "cancel", task_id)
        assert viewer.get(reverse("admin:slackwater_tasks_task_edit", args=[task_id])).status_code == 403
        assert viewer.get(reverse("admin:slackwater_tasks_task_add")).status_code == 403
        assert (
            viewer.post(reverse("admin:slackwater_tasks_task_add"), add_form(tenant, handler=HANDLER)).status_code
            == 403
        )
        assert state(task_id) is TaskState.READY
        assert Task.objects.unscoped().count() == 1

    def test_an_operator_may_change_and_not_add(self, tenant: Tenant) -> None:
        task_id = submit(tenant)
        operator = staff("slackwater_tasks.view_task", "slackwater_tasks.change_task")
        assert press(operator, "slackwater_tasks_task", task_id, "cancel").status_code == 302
        assert state(task_id) is TaskState.CANCELLED
        assert operator.get(reverse("admin:slackwater_tasks_task_add")).status_code == 403

    def test_only_who_may_change_nodes_drains_them(self) -> None:
        node = HandWorker().node
        viewer = staff("slackwater_resources.view_node")
        assert press(viewer, "slackwater_resources_node", node.pk, "drain").status_code == 403
        act(viewer, "slackwater_resources_node", "drain", node.pk)
        node.refresh_from_db()
        assert node.state == "active"
        act(
            staff("slackwater_resources.view_node", "slackwater_resources.change_node"),
            "slackwater_resources_node",
            "drain",
            node.pk,
        )
        node.refresh_from_db()
        assert node.state == "draining"

    def test_the_side_bar_offers_what_one_may_see(self) -> None:
        text = staff("slackwater_tasks.view_task").get(reverse("admin:index")).content.decode()
        assert reverse("admin:slackwater_tasks_task_changelist") in text
        assert reverse("admin:slackwater_tenants_apikey_changelist") not in text

    def test_nobody_unknown_gets_anything(self, tenant: Tenant) -> None:
        task_id = submit(tenant)
        for name, args in (
            ("sw_live", []),
            ("sw_task", [task_id]),
            ("sw_task_output", [task_id]),
            ("sw_run_times", []),
            ("slackwater_tasks_task_changelist", []),
        ):
            response = Client().get(reverse(f"admin:{name}", args=args))
            assert response.status_code == 302
            assert "/admin/login/" in response["Location"]
        nosy = staff()
        assert nosy.get(reverse("admin:sw_live")).status_code == 403
        for name in ("sw_task", "sw_task_output"):
            assert nosy.get(reverse(f"admin:{name}", args=[task_id])).status_code == 403
        assert nosy.get(reverse("admin:sw_run_times")).status_code == 403


def test_a_member_can_be_put_in_a_team_of_the_same_tenant_only(root: Any, page: Client) -> None:
    mine, theirs = create_tenant("mine", "Mine"), create_tenant("theirs", "Theirs")
    for one in (mine, theirs):
        Team.objects.create(tenant=one, slug="crew", name=f"Crew of {one.slug}")
    Membership.objects.create(tenant=mine, user=root)
    shown = page.get(f"/admin/slackwater_tenants/tenant/{mine.pk}/change/").content.decode()
    assert "Crew of mine" in shown
    assert "Crew of theirs" not in shown
