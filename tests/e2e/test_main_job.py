"""The main job with real processes: submit, decide, run, release, retry, cancel."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path

import pytest

from scheduler_ext.core.errors import Conflict
from scheduler_ext.core.states import Outcome, TaskState
from slackwater_tasks.control.cancel import cancel
from slackwater_tasks.control.edit import edit
from slackwater_tasks.control.rerun import retry
from slackwater_tasks.read import output
from slackwater_tasks.read.history import history
from slackwater_tasks.submission.service import store_script
from slackwater_tenants.models import Tenant
from slackwater_tenants.scoping import tenant_scope
from tests.support.platform import Platform
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e


def test_work_of_every_kind_runs_and_is_recorded(platform: Platform, tmp_path: Path) -> None:
    """One platform, all that does not disturb the others: starting processes costs more than the tasks."""
    platform.up()
    _happy_path(platform)
    _failure_and_retry(platform)
    _workflow(platform)
    _conditions(platform)
    _scripts(platform)
    _mounted_scripts(platform, tmp_path)
    _references(platform)
    _mutex(platform)
    _cancelled_before_and_during_the_run(platform)
    _the_execution_cap_ends_the_whole_tree_and_is_told(platform)
    _edited_while_it_waits(platform)
    _measured(platform)
    wait_until(lambda: platform.unfinished() == 0, message="the counter is back at nought")


def _happy_path(platform: Platform) -> None:
    task = platform.wait(platform.submit("demo.add", 2, 3))
    assert (task.state, task.result, task.attempts_used) == (TaskState.SUCCEEDED, 5, 1)
    (attempt,) = platform.attempts(task.pk)
    assert attempt.outcome == Outcome.SUCCEEDED
    assert attempt.queued_at is not None
    assert task.submitted_at <= attempt.queued_at <= attempt.started_at <= attempt.finished_at


def _mounted_scripts(platform: Platform, folder: Path) -> None:
    """From the tenant's own folder, and no further; what ran is known by its hash though the file may change."""
    Tenant.objects.filter(pk=platform.tenant.pk).update(script_root=str(folder / "mounted"))
    platform.tenant.refresh_from_db()
    (folder / "mounted" / "jobs").mkdir(parents=True)
    (folder / "outside.sh").write_text("echo no")
    (folder / "mounted" / "link.sh").symlink_to(folder / "outside.sh")
    for number in (1, 2):
        content = f"echo run {number}; echo {number} > $SLACKWATER_RESULT\n"
        (folder / "mounted" / "jobs" / "one.sh").write_text(content)
        task = platform.wait(platform.submit(script_path="jobs/one.sh"))
        assert (task.state, task.result) == (TaskState.SUCCEEDED, number), task.error
        with tenant_scope(platform.tenant.pk):
            past = history(task.pk)
        assert [entry["to"] for entry in past] == ["ready", "queued", "running", "running", "succeeded"]
        assert past[3]["reason"] == "read jobs/one.sh"
        assert past[3]["detail"] == {"sha256": hashlib.sha256(content.encode()).hexdigest()}
    for path, said in (("link.sh", "leads out of the tenant's folder"), ("none.sh", "there is no file")):
        failed = platform.wait(platform.submit(script_path=path, total_attempts=1))
        assert failed.state == TaskState.FAILED
        assert said in failed.error


def _references(platform: Platform) -> None:
    """By name and by id, for handlers and for scripts."""
    ids = platform.workflow(
        {"name": "one", "handler": "demo.add", "args": [1, 2]},
        {"name": "two", "handler": "demo.add", "args": [{"$from": "one"}, 4], "depends_on": ["one"]},
    )
    one = ids["one"]
    by_id = platform.submit("demo.add", {"$from": str(one)}, 4, depends_on=[str(one)])
    for task_id in (ids["two"], by_id):
        task = platform.wait(task_id)
        assert (task.state, task.result) == (TaskState.SUCCEEDED, 7), task.error
    script = store_script(platform.tenant, "given.sh", b"cat $SLACKWATER_INPUTS > $SLACKWATER_RESULT\n")
    task = platform.wait(platform.submit("", {"$from": str(one)}, script=script.sha256, depends_on=[str(one)]))
    assert task.result == {"args": [3], "kwargs": {}, "upstream": {"one": 3}}
    wrong = {"$from": str(one), "path": "nothing"}
    task = platform.wait(platform.submit("", wrong, script=script.sha256, depends_on=[str(one)], total_attempts=1))
    assert (task.state, task.error) == (
        TaskState.FAILED,
        "args[0]: the result of " + repr(str(one)) + " has no 'nothing'",
    )


def _measured(platform: Platform) -> None:
    """What a lone handler used is its child's account; of a short one nothing is said."""
    (attempt,) = platform.attempts(platform.wait(platform.submit("demo.spin", 2.0)).pk)
    assert attempt.cpu_ms is not None
    assert 100 <= attempt.cpu_ms <= 2500
    assert attempt.peak_memory_mb is None or 20 <= attempt.peak_memory_mb <= 500
    (attempt,) = platform.attempts(platform.wait(platform.submit("demo.noop")).pk)
    assert (attempt.cpu_ms, attempt.peak_memory_mb, attempt.peak_disk_mb) == (None, None, None)


def _failure_and_retry(platform: Platform) -> None:
    failed = platform.wait(platform.submit("demo.fail", "boom", total_attempts=2))
    assert failed.state == TaskState.FAILED
    assert "RuntimeError: boom" in failed.error
    assert failed.reason == "failed: RuntimeError: boom"
    assert [a.outcome for a in platform.attempts(failed.pk)] == [Outcome.FAILED] * 2
    assert failed.dead_letter.reason == failed.reason
    retry(platform.tenant.pk, failed.pk, actor="test")
    again = platform.wait(failed.pk)
    assert [a.number for a in platform.attempts(again.pk)] == [1, 2, 3, 4]
    healed = platform.wait(platform.submit("demo.fail", "once", 1))
    assert (healed.state, healed.result) == (TaskState.SUCCEEDED, 2)


def _workflow(platform: Platform) -> None:
    ids = platform.workflow(
        {"name": "a", "handler": "demo.add", "args": [1, 2]},
        {"name": "b", "handler": "demo.add", "args": [3, 4]},
        {"name": "sum", "handler": "demo.gather", "depends_on": ["a", "b"]},
        {"name": "end", "handler": "demo.noop", "depends_on": ["sum"]},
    )
    end = platform.wait(ids["end"])
    assert end.state == TaskState.SUCCEEDED
    assert platform.row(ids["sum"]).result == {"a": 3, "b": 7}
    started = platform.attempts(ids["sum"])[0].started_at
    assert all(platform.attempts(ids[name])[0].finished_at <= started for name in "ab")


def _conditions(platform: Platform) -> None:
    ids = platform.workflow(
        {"name": "bad", "handler": "demo.fail", "total_attempts": 1},
        {"name": "needs", "handler": "demo.noop", "depends_on": ["bad"]},
        {"name": "beyond", "handler": "demo.noop", "depends_on": ["needs"]},
        {"name": "anyway", "handler": "demo.noop", "depends_on": ["bad"], "condition": "all_done"},
        {"name": "cleanup", "handler": "demo.noop", "depends_on": ["bad"], "condition": "any_failed"},
    )
    states = {name: platform.wait(task_id).state for name, task_id in ids.items()}
    assert states == {
        "bad": TaskState.FAILED, "needs": TaskState.CANCELLED, "beyond": TaskState.CANCELLED,
        "anyway": TaskState.SUCCEEDED, "cleanup": TaskState.SUCCEEDED,
    }  # fmt: skip


def _scripts(platform: Platform) -> None:
    content = b'echo out; echo err >&2; printf \'{"seen": %s}\' "$(cat $SLACKWATER_INPUTS)" > $SLACKWATER_RESULT\n'
    script = store_script(platform.tenant, "hello.sh", content)
    task = platform.wait(platform.submit(script=script.sha256, kwargs={"n": 1}))
    assert task.state == TaskState.SUCCEEDED, task.error
    assert task.result == {"seen": {"args": [], "kwargs": {"n": 1}, "upstream": {}}}
    with tenant_scope(platform.tenant.pk):
        said = {line["stream"]: line["text"] for line in output.lines(task.pk)}
    assert said == {"stdout": "out", "stderr": "err"}
    bad = store_script(platform.tenant, "bad.sh", b"echo no >&2; exit 7\n")
    failed = platform.wait(platform.submit(script=bad.sha256, total_attempts=1))
    assert (failed.state, failed.error) == (TaskState.FAILED, "exit code 7: no")
    assert platform.attempts(failed.pk)[0].exit_code == 7


def _mutex(platform: Platform) -> None:
    ids = [platform.submit("demo.sleep", 0.05, mutex_key="one at a time") for _ in range(6)]
    for task_id in ids:
        assert platform.wait(task_id).state == TaskState.SUCCEEDED
    spans = sorted((a.started_at, a.finished_at) for task_id in ids for a in platform.attempts(task_id))
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans


def _cancelled_before_and_during_the_run(platform: Platform) -> None:
    later = platform.submit("demo.noop", start_at="2099-01-01T00:00:00Z")
    assert cancel(platform.tenant.pk, later, actor="test") is TaskState.CANCELLED
    assert platform.row(later).state == TaskState.CANCELLED
    with pytest.raises(Conflict):
        cancel(platform.tenant.pk, later)
    running = platform.submit("demo.sleep", 60)
    platform.wait(running, TaskState.RUNNING)
    assert cancel(platform.tenant.pk, running, actor="test") is TaskState.RUNNING
    ended = platform.wait(running, timeout=30)
    assert (ended.state, platform.attempts(running)[0].outcome) == (TaskState.CANCELLED, Outcome.CANCELLED)
    script = store_script(platform.tenant, "long.sh", b"trap '' TERM; sleep 60 & sleep 60\n")
    task_id = platform.submit(script=script.sha256)
    platform.wait(task_id, TaskState.RUNNING)
    cancel(platform.tenant.pk, task_id)
    assert platform.wait(task_id, timeout=30).state == TaskState.CANCELLED


def _the_execution_cap_ends_the_whole_tree_and_is_told(platform: Platform) -> None:
    sleeping = platform.submit("demo.sleep", 60, execution_cap_s=0.3, total_attempts=1)
    spinning = platform.submit("demo.spin", 60, execution_cap_s=0.3, total_attempts=1)
    daemon = b"setsid sh -c 'sleep 77.125' & trap '' TERM; sleep 60\n"
    script = store_script(platform.tenant, "daemon.sh", daemon)
    scripted = platform.submit(script=script.sha256, execution_cap_s=0.5, total_attempts=1)
    for task_id in (sleeping, spinning, scripted):
        task = platform.wait(task_id, timeout=30)
        assert task.state == TaskState.FAILED
        assert "its execution cap was reached" in task.error
        (attempt,) = platform.attempts(task_id)
        assert attempt.outcome == Outcome.CAP_EXCEEDED
        assert (attempt.finished_at - attempt.started_at).total_seconds() < 30
    import psutil

    assert not [p for p in psutil.process_iter(["cmdline"]) if "77.125" in " ".join(p.info["cmdline"] or [])]
    assert platform.wait(platform.submit("demo.noop")).state == TaskState.SUCCEEDED


def _edited_while_it_waits(platform: Platform) -> None:
    task_id = platform.submit("demo.add", 1, 2, start_at="2099-01-01T00:00:00Z")
    edit(platform.tenant.pk, task_id, {"args": [20, 22], "start_at": None, "priority": 7}, actor="key:1")
    task = platform.wait(task_id)
    assert (task.result, task.priority) == (42, 7)
    event = task.events(manager="_plain").get(reason="edited")
    assert event.detail is not None
    assert event.detail["args"] == [[1, 2], [20, 22]]
    assert event.actor == "key:1"
    with pytest.raises(Conflict, match="succeeded"):
        edit(platform.tenant.pk, task_id, {"priority": 1})
