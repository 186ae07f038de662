"""Policies chosen while the platform runs: nothing is lost, and the new order holds."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import redis
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.errors import ConfigurationError, InvalidInput, NotFound
from slackwater_resources.models import Handler
from slackwater_tasks.control import policies as choosing
from slackwater_tasks.ledger import active_policies
from slackwater_tasks.ledger.connection import Database, fetch_all
from slackwater_tasks.models import Line, LiveTask, PolicyChoice, RankSweep, RunTime
from slackwater_tasks.submission.service import store_script, submit, submit_many
from slackwater_tasks.upkeep import reranking
from slackwater_tasks.upkeep.reranking import rerank
from slackwater_tenants.models import Pool, Tenant
from slackwater_tenants.services import create_tenant
from tests.support.api import furnish
from tests.support.rounds import Rounds
from tests.support.waiting import wait_until


@pytest.fixture
def rounds(transactional_db: None, redis_client: redis.Redis) -> Iterator[Rounds]:
    """A cell of one slot: tasks run one after the other."""
    furnish()
    made = Rounds(slots=1)
    yield made
    made.close()


@pytest.fixture
def reranker(rounds: Rounds) -> Iterator[Callable[[], int]]:
    """Upkeep's job, on a connection of its own."""
    db = Database("reranker")
    made = partial(rerank, rounds.conf, db)
    made()  # as upkeep of a platform that runs has done
    yield made
    db.close()


def hand_in(tenant: Tenant, tolerances: list[int]) -> dict[UUID, int]:
    """Tasks with these delay tolerances, in seconds."""
    ids = submit_many(tenant, [{"handler": "demo.echo", "delay_tolerance_s": s} for s in tolerances]).task_ids
    return dict(zip(ids, tolerances, strict=True))


def test_an_order_is_switched_while_work_waits_and_nothing_is_lost(
    rounds: Rounds, reranker: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = create_tenant("a", "A")
    tasks = hand_in(tenant, [3000 - 100 * n for n in range(20)])
    first = rounds.served(5)
    assert [tasks[task_id] for task_id in first] == [3000, 2900, 2800, 2700, 2600], "first in, first out"
    choosing.choose("order", "deadline", actor="test")
    rounds.changed()
    late = hand_in(tenant, [50, 5000])  # by the order of now, while the others have theirs of before
    monkeypatch.setattr(reranking, "BATCH", 4)
    monkeypatch.setattr(reranking, "AT_ONCE_S", 0.0001)
    assert reranker() == 4
    sweep = RankSweep.objects.get()
    assert (sweep.epoch, sweep.passes, sweep.moved) == (1, 2, 4)
    mixed = rounds.served(3)  # some ranks are of the epoch before: rounds go on
    monkeypatch.undo()
    wait_until(lambda: reranker() >= 0 and RankSweep.objects.get().passes == 0, message="both passes are over")
    all_of = tasks | late
    rest = rounds.served(14)
    assert [all_of[task_id] for task_id in rest] == sorted(all_of[task_id] for task_id in rest)
    assert sorted([*first, *mixed, *rest]) == sorted(all_of), "each ran once, none was lost"
    assert not LiveTask.objects.unscoped().exists()  # the test is no tenant
    assert reranker() == 0


def test_ranks_after_a_sweep_are_those_a_submission_gives(rounds: Rounds, reranker: Callable[[], int]) -> None:
    tenant = create_tenant("a", "A")
    before = hand_in(tenant, [40, 30, 20])
    for order in ("shortest_first", "deadline", "feedback", "round_robin", "fifo"):
        choosing.choose("order", order)
        moved = reranker()
        assert moved > 0 or order not in ("shortest_first", "deadline", "feedback"), order
        fresh = submit(tenant, {"handler": "demo.echo", "delay_tolerance_s": 30}).task_ids[0]
        rows = {row.pk: row for row in LiveTask.objects.unscoped().filter(tenant=tenant)}  # the test is no tenant
        old = rows[list(before)[1]]
        apart = rows[fresh].rank - old.rank
        submitted = rows[fresh].task.submitted_at - old.task.submitted_at
        assert apart == pytest.approx(submitted.total_seconds() * 1e6, abs=2)
        assert rows[fresh].rank_group == old.rank_group
    assert RankSweep.objects.get().epoch == 5


def test_the_nearest_choice_holds(rounds: Rounds) -> None:
    a, b = create_tenant("a", "A"), create_tenant("b", "B")
    org = Pool.objects.create(slug="org")
    a.pool = Pool.objects.create(slug="team", parent=org)
    a.save()
    for tenant in (a, b):
        hand_in(tenant, [10])
        submit(tenant, {"handler": "demo.echo", "tier": "premium"})
    line = Line.objects.unscoped().get(tenant=a, tier__slug="premium")  # the test is no tenant

    def names() -> list[str]:
        chosen = active_policies.current("default")
        other = Line.objects.unscoped().exclude(pk=line.pk).filter(tenant=a)[0].pk  # the test is no tenant
        return [
            chosen.order_of(a.pk, line.pk).name,
            chosen.order_of(a.pk, other).name,
            chosen.order_of(b.pk, 0).name,
        ]

    assert names() == ["fifo", "fifo", "fifo"]
    choosing.choose("order", "feedback")
    assert names() == ["feedback", "feedback", "feedback"]
    choosing.choose("order", "round_robin", subject=org)
    assert names() == ["round_robin", "round_robin", "feedback"]
    choosing.choose("order", "deadline", subject=a)
    assert names() == ["deadline", "deadline", "feedback"]
    choosing.choose("order", "shortest_first", {"weight": 3}, subject=line)
    assert names() == ["shortest_first", "deadline", "feedback"]
    choosing.unchoose("order", subject=a)
    assert names() == ["shortest_first", "round_robin", "feedback"]
    choosing.unchoose("order")
    assert names() == ["shortest_first", "round_robin", "fifo"]
    with pytest.raises(NotFound):
        choosing.unchoose("order")


def test_shortest_first_goes_by_learnt_run_times(rounds: Rounds) -> None:
    tenant = create_tenant("a", "A")
    Handler.objects.get_or_create(name="demo.add")
    for key, seconds in (("demo.echo", 100), ("demo.add", 1)):
        RunTime.objects.create(tenant=tenant, key=key, samples=50, mean_us=seconds * 1e6)
    rounds.worker.node.handlers = list(Handler.objects.values_list("pk", flat=True))
    rounds.worker.node.save()
    choosing.choose("order", "shortest_first", subject=tenant)
    rounds.changed()
    long = submit(tenant, {"handler": "demo.echo"}).task_ids[0]
    short = submit(tenant, {"handler": "demo.add", "args": [1, 2]}).task_ids[0]
    assert rounds.served(2) == [short, long]


def test_shortest_first_goes_by_what_is_learnt_of_scripts(rounds: Rounds) -> None:
    """By what a script is, else by the pattern of its name; on submission as after a change of order."""
    tenant = create_tenant("a", "A")
    long, short, other = (store_script(tenant, f"{n}.sh", f"#!/bin/sh\n# {n}\n".encode()).sha256 for n in range(3))
    for key, seconds in ((f"script:{long}", 100), (f"script:{short}", 1), ("name:night #", 10)):
        RunTime.objects.create(tenant=tenant, key=key, samples=50, mean_us=seconds * 1e6)
    choosing.choose("order", "shortest_first")
    rounds.changed()
    made = [{"script": long, "name": "night 1"}, {"script": other, "name": "night 2"}, {"script": short}]
    ids = [submit(tenant, each).task_ids[0] for each in made]
    ranks = [LiveTask.objects.unscoped().get(pk=task).rank for task in ids]
    assert ranks == sorted(ranks, reverse=True)
    with connection.cursor() as cursor:
        cursor.execute(reranking.READ, (UUID(int=0), "default", 100))
        chosen = active_policies.read(fetch_all, rounds.conf, "default")
        assert [reranking._place(chosen, row) for row in cursor.fetchall()] == [(0, rank) for rank in ranks]


def test_what_cannot_be_is_refused_and_what_is_stored_wrongly_does_not_stop_rounds(rounds: Rounds) -> None:
    tenant = create_tenant("a", "A")
    with pytest.raises(ConfigurationError) as caught:
        choosing.choose("order", "shortest_first", {"weight": 0})
    assert caught.value.field == "order_policy.weight"
    with pytest.raises(InvalidInput):
        choosing.choose("share", "fair", subject=tenant)
    with pytest.raises(InvalidInput):
        choosing.choose("shadow", "fair", subject=Pool.objects.create(slug="p"))
    PolicyChoice.objects.create(kind="share", policy="nonsense")
    PolicyChoice.objects.create(kind="order", policy="deadline", parameters={"default_tolerance_s": -1})
    hand_in(tenant, [10])
    assert len(rounds.served(1)) == 1


def policies(*args: str) -> Any:
    out = io.StringIO()
    call_command("policies", *args, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_command_lists_shows_sets_and_unsets(rounds: Rounds) -> None:
    tenant = create_tenant("a", "A")
    hand_in(tenant, [10])
    Pool.objects.create(slug="team", parent=Pool.objects.create(slug="org"))
    assert {"kind": "share", "policy": "equal"}.items() <= policies("list")[6].items()
    policies("set", "share", "capacity", "memory_s=60")
    policies("set", "order", "shortest_first", "weight=7", "--tenant", "a")
    policies("set", "order", "deadline", "--tenant", "a", "--line", "delayable/basic")
    shown = policies("set", "share", "fair", "--pool", "org/team")["policies"]
    assert {(row["kind"], row["for"], row["policy"]) for row in shown} == {
        ("share", "cell default", "capacity"),
        ("order", "tenant a", "shortest_first"),
        ("order", "line a · delayable · basic", "deadline"),
        ("share", "pool org/team", "fair"),
        ("order", "cell default", "fifo"),
    }
    assert policies("unset", "share", "--pool", "org/team")["policies"] != shown
    with pytest.raises(CommandError, match="no line urgent/basic"):
        call_command("policies", "set", "order", "fifo", "--tenant", "a", "--line", "urgent/basic")
    chosen = active_policies.read(fetch_all, SchedulerConf(), "default")
    assert (chosen.share.name, chosen.share.parameters["memory_s"]) == ("capacity", 60)
    assert chosen.share.parameters["queues"]["org/team"]["lends"] == 100.0


@pytest.mark.django_db
class TestAdmin:
    """Choosing in the admin goes through the same services."""

    def test_a_policy_is_chosen_changed_and_taken_back(self, admin_client: Client) -> None:
        furnish()
        tenant = create_tenant("a", "A")
        form = {
            "kind": "order",
            "policy": "deadline",
            "parameters": "{}",
            "cell": "default",
            "tenant": tenant.pk,
        }
        answer = admin_client.post(reverse("admin:slackwater_tasks_policychoice_add"), form)
        assert answer.status_code == 302, answer.content
        choice = PolicyChoice.objects.get()
        assert (choice.tenant, choice.policy, choice.chosen_by) == (tenant, "deadline", "user:admin")
        page = reverse("admin:slackwater_tasks_policychoice_change", args=[choice.pk])
        assert admin_client.get(page).status_code == 200
        wrong = admin_client.post(page, {"policy": "shortest_first", "parameters": '{"weight": 0}'})
        assert b"must be from 1 to 1000000" in wrong.content
        assert admin_client.post(page, {"policy": "shortest_first", "parameters": '{"weight": 2}'}).status_code == 302
        assert PolicyChoice.objects.get().parameters == {"weight": 2}
        gone = reverse("admin:slackwater_tasks_policychoice_delete", args=[choice.pk])
        assert admin_client.post(gone, {"post": "yes"}).status_code == 302
        assert not PolicyChoice.objects.exists()
        lost = admin_client.post(
            reverse("admin:slackwater_tasks_policychoice_add"), {**form, "cell": "defualt", "tenant": ""}
        )
        assert lost.context["adminform"].form.errors["cell"] == ["cell: there is no cell 'defualt'; known are default"]

    @pytest.mark.parametrize(
        ("kind", "named", "field", "told"),
        [
            ("share", ["tenant"], "kind", "kind: a share is chosen for a cell or a pool"),
            ("share", ["line"], "kind", "kind: a share is chosen for a cell or a pool"),
            ("shadow", ["pool"], "kind", "kind: a shadow is chosen for a cell"),
            ("order", ["pool", "line"], "pool", "pool: choose for one of pool, tenant and line"),
        ],
    )
    def test_a_subject_that_cannot_have_one_is_refused_at_its_field(
        self, admin_client: Client, kind: str, named: list[str], field: str, told: str
    ) -> None:
        furnish()
        tenant = create_tenant("a", "A")
        submit(tenant, {"handler": "demo.echo"})
        subjects = {
            "tenant": tenant.pk,
            "line": Line.objects.unscoped().get().pk,  # the test is no tenant
            "pool": Pool.objects.create(slug="org").pk,
        }
        policy = "deadline" if kind == "order" else "fair"
        form = {"kind": kind, "policy": policy, "parameters": "", "cell": "default"}
        add = reverse("admin:slackwater_tasks_policychoice_add")
        refused = admin_client.post(add, form | {name: subjects[name] for name in named})
        assert refused.context["adminform"].form.errors == {field: [told]}
        assert not PolicyChoice.objects.exists()

    def test_nested_levels_and_pools_with_policies_of_their_own_exclude_each_other(self) -> None:
        org = Pool.objects.create(slug="org")
        choosing.choose("share", "nested", {"levels": {"org": {"policy": "fair"}}})
        with pytest.raises(
            InvalidInput, match="policy: the cell's policy is nested: its levels say what holds in pools"
        ):
            choosing.choose("share", "capacity", subject=org)
        choosing.choose("share", "fair")
        choosing.choose("share", "capacity", subject=org)
        with pytest.raises(InvalidInput, match="policy: pools have policies of their own: take those back first"):
            choosing.choose("share", "nested")
        chosen = active_policies.read(fetch_all, SchedulerConf(), "default")
        assert set(chosen.share.parameters["levels"]) == {"", "org"}
        choosing.choose("shadow", "nested")  # it has no pools' own beside it

    def test_every_policy_that_is_known_is_offered(self, admin_client: Client) -> None:
        add = reverse("admin:slackwater_tasks_policychoice_add")
        form = {"kind": "share", "policy": "fifo", "parameters": "", "cell": "default"}
        (told,) = admin_client.post(add, form).context["adminform"].form.errors["policy"]
        offered = dict(admin_client.get(add).context["adminform"].form.fields["policy"].choices)
        known = told.split("known are ")[1].split(", ")
        assert set(known) == {name for name, _ in offered["share between lines"]}
        levels = 'levels: {"": {"policy": "fair"}}'
        assert admin_client.post(add, form | {"policy": "nested", "parameters": levels}).status_code == 302
        assert PolicyChoice.objects.get().parameters == {"levels": {"": {"policy": "fair"}}}

    def test_pools_that_do_not_fit_are_refused_at_their_field(self, admin_client: Client) -> None:
        form = {"cell": "default", "weight": 1, "maximum": 100, "lends": 100, "inside": "fair"}
        add = reverse("admin:slackwater_tenants_pool_add")
        assert admin_client.post(add, {**form, "slug": "a", "guaranteed": 60}).status_code == 302
        refused = admin_client.post(add, {**form, "slug": "b", "guaranteed": 50})
        assert b"more than 100 % would be guaranteed" in refused.content
        top = Pool.objects.get()
        assert admin_client.post(add, {**form, "slug": "b", "guaranteed": 50, "parent": top.pk}).status_code == 302
        page = reverse("admin:slackwater_tenants_pool_change", args=[top.pk])
        inside = Pool.objects.get(slug="b")
        circle = admin_client.post(page, {**form, "slug": "a", "guaranteed": 60, "parent": inside.pk})
        assert b"cannot stand in itself" in circle.content
        assert str(inside) == "a/b"
