"""Show the policies in force, and choose others while the platform runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from scheduler_ext.core.errors import InvalidInput, NotFound
from scheduler_ext.core.states import Category
from scheduler_ext.policies.registry import ORDER_POLICIES, SHARE_POLICIES, parameters_of
from scheduler_ext.round import replay
from slackwater.management.console import ACTOR, PlatformCommand, find_tenant, parse_json
from slackwater.wiring import engine
from slackwater_conf import conf
from slackwater_tasks.control import policies
from slackwater_tasks.models import Line, PolicyChoice, RankSweep, ShadowUse
from slackwater_tenants.models import Pool

ACTIONS = ("list", "show", "set", "unset", "replay", "compare")


class Command(PlatformCommand):
    for_tenant = False
    watches = True
    help = (
        "List the policies there are, show which hold, choose others while the platform runs, decide recorded rounds "
        "again, and tell who would have waited less under another."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("action", choices=ACTIONS)
        parser.add_argument("kind", nargs="?", help="order, share or shadow (set, unset); a file of rounds (replay)")
        parser.add_argument("policy", nargs="?", help="its name (set)")
        parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE", help="its parameters, as JSON (set)")
        parser.add_argument("--cell", default=conf().cell, help="the cell (default: the configured one)")
        parser.add_argument("--pool", metavar="PATH", help="for a pool: org/team")
        parser.add_argument("--tenant", metavar="SLUG", help="for a tenant's lines (orders only)")
        parser.add_argument("--line", metavar="CATEGORY/TIER", help="with --tenant: for this line of it (orders only)")

    def run(self, options: dict[str, Any]) -> None:
        if options["action"] in ("set", "unset", "replay"):
            self.once(options)
        getattr(self, f"_{options['action']}")(options)

    def _list(self, options: dict[str, Any]) -> None:
        del options
        rows = [
            {"kind": kind, "policy": name, "parameters": parameters_of(policy)}
            for kind, known in (("order", ORDER_POLICIES), ("share", SHARE_POLICIES))
            for name, policy in known.items()
        ]
        shown = [(row["kind"], row["policy"], ", ".join(row["parameters"])) for row in rows]
        self.answer_table(rows, "Policies", ("kind", "policy", "parameters"), shown, empty="there are none")

    def _show(self, options: dict[str, Any]) -> None:
        conf, cell = engine().conf, options["cell"]
        chosen = PolicyChoice.objects.filter(cell=cell).select_related("pool", "tenant", "line__tenant", "line__tier")
        sweep = RankSweep.objects.filter(cell=cell).first()
        rows = [
            {"kind": one.kind, "for": _subject(one), "policy": one.policy, "parameters": one.parameters,
             "since": one.chosen_at, "by": one.chosen_by}
            for one in chosen
        ]  # fmt: skip
        known = {row["kind"] for row in rows if row["for"] == f"cell {cell}"}
        rows += [
            {"kind": kind, "for": f"cell {cell}", "policy": policy, "parameters": {}, "since": None,
             "by": "configuration"}
            for kind, policy in (("order", conf.order_policy), ("share", conf.share_policy)) if kind not in known
        ]  # fmt: skip
        ranks = {"epoch": sweep.epoch if sweep else 0, "passes_left": sweep.passes if sweep else 0}
        if self.as_json:
            self.show({"cell": cell, "policies": rows, "ranks": ranks})
            return
        columns = ("kind", "for", "policy", "parameters", "since", "by")
        shown = [[row[name] for name in columns] for row in rows]
        self.show_table(f"Policies of cell {cell}", columns, shown, empty="")
        if ranks["passes_left"]:
            self.console.print(f"ranks: epoch {ranks['epoch']} is being brought in by upkeep")

    def _set(self, options: dict[str, Any]) -> None:
        if not options["kind"] or not options["policy"]:
            raise InvalidInput("say what to set: policies set order|share|shadow POLICY [NAME=VALUE …]")
        parameters = {}
        for text in options["parameters"]:
            name, _, value = text.partition("=")
            parameters[name] = parse_json(value, name)
        choice = policies.choose(
            options["kind"],
            options["policy"],
            parameters,
            cell=options["cell"],
            subject=self._target(options), actor=ACTOR,
        )  # fmt: skip
        self._tell(f"{choice}", options)

    def _unset(self, options: dict[str, Any]) -> None:
        if not options["kind"]:
            raise InvalidInput("say what to unset: policies unset order|share|shadow")
        policies.unchoose(options["kind"], cell=options["cell"], subject=self._target(options))
        self._tell(f"{options['kind']}: what is chosen further up holds", options)

    def _replay(self, options: dict[str, Any]) -> None:
        """Decide recorded rounds again; exit code 1 when one comes out otherwise."""
        if not options["kind"]:
            raise InvalidInput("say which file of recorded rounds")
        rounds, wrong = 0, []
        try:
            with Path(options["kind"]).open("rb") as file:
                for line in file:
                    recorded = replay.load(line)
                    rounds += 1
                    if replay.replay(recorded) != recorded.decisions:
                        wrong.append({"line": rounds, "digest": replay.digest(recorded.snapshot)})
        except OSError as error:
            raise InvalidInput(f"{options['kind']}: {error.strerror}") from error
        if self.as_json:
            self.show({"rounds": rounds, "same": rounds - len(wrong), "different": wrong})
        else:
            self.console.print(f"{rounds} rounds decided again, {rounds - len(wrong)} of them the same byte for byte")
            self.show_table("Different", ("line", "snapshot"), [tuple(one.values()) for one in wrong], empty="")
        if wrong:
            raise SystemExit(1)

    def _compare(self, options: dict[str, Any]) -> None:
        """What the shadow has counted in the cell."""
        rows = [_compared(one) for one in ShadowUse.objects.filter(cell=options["cell"]).select_related("tenant")]
        rows.sort(key=lambda row: row["mean_change_s"])
        columns = ("tenant", "first", "second", "started", "mean_wait_s", "mean_change_s", "sooner", "later")
        empty = "no shadow has decided yet; choose one with: manage.py policies set shadow POLICY"
        shown = [[row[name] for name in columns] for row in rows]
        title = "Waits, and how they would change under the second policy"
        self.answer_table(rows, title, columns, shown, empty=empty)

    def _tell(self, said: str, options: dict[str, Any]) -> None:
        if self.as_json:
            self._show(options)
        else:
            self.console.print(f"{said}; it holds from the next round on")

    def _target(self, options: dict[str, Any]) -> policies.Subject:
        """What the choice is for."""
        if options["line"] and not options["tenant"]:
            raise InvalidInput("say whose line it is", field="--tenant")
        if options["pool"] and options["tenant"]:
            raise InvalidInput("either a pool or a tenant", field="--pool")
        if options["pool"]:
            return _pool(options["cell"], options["pool"])
        if not options["tenant"]:
            return None
        tenant = find_tenant(options["tenant"])
        if not options["line"]:
            return tenant
        category, _, tier = options["line"].partition("/")
        words = {each.name.lower(): each for each in Category}
        lines = Line.objects.unscoped().filter(tenant=tenant, tier__slug=tier)  # the tenant is named
        line: Line | None = lines.filter(category=words[category]).first() if category in words else None
        if line is None:
            raise NotFound(f"{tenant.slug} has no line {options['line']}", field="--line")
        return line


def _compared(use: ShadowUse) -> dict[str, Any]:
    started = max(1, use.started)
    return {
        "tenant": use.tenant.slug, "first": use.first, "second": use.second, "started": use.started,
        "mean_wait_s": round(use.waited_s / started, 3),
        "mean_change_s": round((use.later_s - use.sooner_s) / started, 3),
        "sooner": use.sooner, "later": use.later, "since": use.since,
    }  # fmt: skip


def _subject(choice: PolicyChoice) -> str:
    if choice.pool:
        return f"pool {choice.pool}"
    if choice.tenant:
        return f"tenant {choice.tenant}"
    return f"line {choice.line}" if choice.line else f"cell {choice.cell}"


def _pool(cell: str, path: str) -> Pool:
    found = {pool.path: pool for pool in Pool.objects.filter(cell=cell)}.get(path)
    if found is None:
        raise NotFound(f"there is no pool {path!r} in cell {cell}", field="--pool")
    return found
