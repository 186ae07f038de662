"""Submitting: the handlers that the plan grants, and a form for each, made from the JSON Schema of its arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html

from slackwater_adminkit.display import seconds
from slackwater_api.v1.shapes.common import CATEGORIES, ON_LATE
from slackwater_console.forms import Field, Made, arguments, given
from slackwater_console.page import At, page
from slackwater_console.rest import Refused
from slackwater_console.templatetags.console import money
from slackwater_schedules.form import NAMED_HINT
from slackwater_tasks.spec import FIELDS

NAME: Final = Field(name="name", label="Name of the task")
WHOLE: Final = Field(
    name="arguments",
    label="Arguments",
    kind="lines",
    help=f"{NAMED_HINT} Its workers do not say which there are.",
)
MORE: Final = Field(name="arguments", label="Other arguments", kind="lines", help=NAMED_HINT)
ARGUMENT: Final = "arg."


def _row(at: At, item: dict[str, Any]) -> list[Any]:
    name = item["name"]
    state = "paused" if item["paused"] else "" if item["available"] else "no node runs it now"
    link = format_html('<a href="{}">{}</a>', at.url("submit", name), name) if at.person.may("submit") else name
    return [link, item["description"] or "", seconds(item["usual_run_s"]), state]


@page
def handlers(at: At) -> HttpResponse:
    """What may be submitted."""
    rows = [_row(at, item) for item in at.get("handlers")["items"]]
    head = ("Handler", "What it does", "Usually takes", "")
    return at.show("list", title="Submit", head=head, rows=rows, first=None, empty="Your plan grants no handler.")


def own_arguments(schema: dict[str, Any] | None) -> list[Field]:
    """The arguments of a handler, each with a field where its schema is known."""
    own = [WHOLE] if schema is None else arguments(schema)
    if schema is not None and schema.get("additionalProperties", True):
        own.append(MORE)
    return own


def about_task(found: dict[str, Any]) -> list[Field]:
    """What every task may be given."""
    about = [
        Field(name="category", label="Category", kind="choice", choices=CATEGORIES),
        Field(name="tier", label="Tier", kind="choice", choices=found["tiers"]),
        Field(name="priority", label="Priority", kind="whole"),
        Field(name="delay_tolerance_s", label="May wait (seconds)", kind="number"),
        Field(name="start_at", label="Not before (UTC)", kind="moment"),
        Field(name="execution_cap_s", label="Longest run (seconds)", kind="number"),
        Field(name="total_attempts", label="Attempts", kind="whole"),
        Field(
            name="on_late",
            label="When it is late",
            kind="choice",
            choices={word: word.replace("_", " ") for word in ON_LATE},
        ),
        Field(name="tags", label="Tags", kind="list"),
        Field(name="mutex_key", label="Mutex key"),
        Field(name="require_labels", label="Labels of nodes it needs", kind="list"),
        Field(name="metadata", label="Metadata", kind="texts", folded=True),
    ]
    return [NAME, *(replace(field, help=field.help or FIELDS[field.name].help) for field in about)]


def _task(handler: str, fields: list[Field], at: At) -> dict[str, Any]:
    """The body of a submission: the arguments apart from the task's other fields."""
    values = given(fields, at.request.POST)
    more = values.pop("arguments", {})
    kwargs = {name.removeprefix(ARGUMENT): values.pop(name) for name in [*values] if name.startswith(ARGUMENT)}
    return {**values, "handler": handler, "kwargs": {**more, **kwargs} if isinstance(more, dict) else more}


@page
def submit(at: At, handler_name: str) -> HttpResponse:
    """The form of one handler; sent twice it submits once. What it would cost is told where that is asked."""
    at.person.require("submit")
    found = at.get(f"handlers/{handler_name}")
    made, once, quote = Made([*own_arguments(found["schema"]), *about_task(found)]), str(uuid4()), None
    if at.request.method == "POST":
        data, asks = at.request.POST, "quote" in at.request.POST
        once, made.fields = data.get("once", "")[:100] or once, [field.filled(data) for field in made.fields]
        try:
            more: dict[str, Any] = {"query": {"dry_run": "true"}} if asks else {"once": f"console:{once}"}
            made.answer = at.ask("POST", "tasks", _task(handler_name, made.fields, at), **more)
        except Refused as refused:
            made.refused, once = refused.words, str(uuid4())
        else:
            if not asks:
                messages.success(at.request, "The task was accepted.")
                return redirect(at.url("task", made.answer["id"]))
            quote = made.answer
    return at.show(
        "submit", section="handlers", title=handler_name, handler=found, refused=made.refused, quote=quote,
        price=quote and money(quote["price"]["expected_micros"]), most=quote and money(quote["price"]["most_micros"]),
        form={"title": "Arguments", "label": "Submit", "fields": made.fields, "once": once, "quotes": True,
              "url": at.url("submit", handler_name)},
    )  # fmt: skip
