"""The organisation itself: limits, keys, members."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.tokens import default_token_generator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.html import format_html
from django.utils.http import urlsafe_base64_encode
from django.views.decorators.http import require_POST

from scheduler_ext.core.errors import Conflict
from slackwater_api.v1.shapes.organization import GIVEN
from slackwater_conf import conf
from slackwater_console.acts import button, buttons
from slackwater_console.forms import Field, Made, make
from slackwater_console.page import At, page
from slackwater_console.person import ROLE_WORDS, ROLES
from slackwater_console.templatetags.console import badge, fact, moment
from slackwater_tenants.members import invite


@page
def limits(at: At) -> HttpResponse:
    """The plan's numbers and what is used of them, the lines, the execution rates; who may, pauses all work."""
    found, organization = at.get("limits"), at.get("organization")
    acts = buttons(at)("resume_all" if organization["paused"] else "pause_all")
    plan = [fact(name, value) for name, value in found["limits"].items() if value]
    return at.show(
        "limits", title="Limits", found=found, organization=organization, acts=acts, plan=plan,
        queues=at.get("queues")["items"], rates=at.get("rates")["items"],
    )  # fmt: skip


def _key(at: At, item: dict[str, Any]) -> list[Any]:
    ended = item["revoked_at"] is not None
    acts = ("rotate_key", "rotate_key_slowly", "revoke_key") if not ended else ()
    shown = [button(at, name, item["id"]) for name in acts]
    return [
        item["name"],
        format_html("<code>{}</code>", item["id"]),
        ", ".join(item["scopes"]),
        moment(item["created_at"]),
        moment(item["last_used_at"]),
        badge("revoked") if ended else moment(item["expires_at"]),
        format_html('<span class="sw-buttons">{}{}{}</span>', *shown) if shown else "",
    ]


@page
def keys(at: At) -> HttpResponse:
    """The keys of the organisation and of its people; a new one is shown once, in the answer to its form."""
    people = {item["username"]: item["id"] for item in at.get("members", limit=500)["items"]}
    fields = (
        Field(name="name", label="Name", required=True),
        Field(name="scopes", label="What it may do", kind="several", choices=GIVEN, value=["read", "submit"]),
        Field(name="expires_at", label="Ends (UTC)", kind="moment", help="Empty: never."),
        Field(
            name="member_id",
            label="Whose it is",
            kind="choice",
            choices=tuple(people),
            help="Empty: the organisation's.",
        ),
    )
    chosen = at.request.POST.get("member_id", "")
    made = make(at, "keys", fields, **({"member_id": people.get(chosen, chosen)} if chosen else {}))
    found = at.list("keys", _key)
    return at.show(
        "list", title="Keys", head=("Name", "Id", "May", "Made", "Used", "Ends", ""), may_make=at.person.may("manage"),
        form=_form("A new key", "Make", made, at.url("keys")), secret=made.answer and made.answer["key"],
        **{**found, "refused": made.refused or found["refused"]},
    )  # fmt: skip


def _form(title: str, label: str, made: Made, url: str) -> dict[str, Any]:
    """A form as its template takes it."""
    return {"title": title, "label": label, "fields": made.fields, "url": url}


def _member(at: At, item: dict[str, Any]) -> list[Any]:
    role = ROLE_WORDS[item["role"]]
    name: Any = item["username"]
    if at.person.may("manage"):
        name = format_html('<a href="{}">{}</a>', at.url("member", item["id"]), name)
    return [name, role, item["email"] or "–", item["team"] or "–", moment(item["created_at"])]


def _role(at: At) -> dict[str, Any]:
    """The role that a form names, as the REST interface calls it."""
    word = at.request.POST.get("role", "")
    return {"role": str(ROLES.get(word, word))} if word else {}


def _about(at: At, now: dict[str, Any] | None = None) -> tuple[Field, ...]:
    teams = tuple(item["slug"] for item in at.get("teams")["items"])
    now = now or {"role": "viewer", "email": "", "team": ""}
    return (
        Field(name="role", label="Role", kind="choice", choices=tuple(ROLES), required=True, value=ROLE_WORDS[now["role"]],
              help="A viewer looks; an operator submits, cancels and runs again too; an admin does everything."),
        Field(name="email", label="E-mail", kind="email", value=now["email"] or ""),
        *((Field(name="team", label="Team", kind="choice", choices=teams, value=now["team"] or ""),) if teams else ()),
    )  # fmt: skip


@page
def members(at: At) -> HttpResponse:
    """The organisation's people and their roles."""
    fields = (Field(name="username", label="Name", required=True, help="Unique on the platform."), *_about(at))
    made = make(at, "members", fields, **_role(at))
    if made.answer:
        messages.success(at.request, f"{made.answer['username']} is a member now.")
        return redirect(at.url("members"))
    found = at.list("members", _member)
    return at.show(
        "list", title="Members", head=("Name", "Role", "E-mail", "Team", "Since"), may_make=at.person.may("manage"),
        form=_form("A new member", "Make", made, at.url("members")),
        **{**found, "refused": made.refused or found["refused"]},
    )  # fmt: skip


@page
def member(at: At, member_id: UUID) -> HttpResponse:
    """One member: its role, address and team are changed here, or it is removed."""
    now = at.get(f"members/{member_id}")
    made = make(at, f"members/{member_id}", _about(at, now), method="PATCH", **_role(at))
    if made.answer:
        messages.success(at.request, "It was changed.")
        return redirect(at.url("members"))
    return at.show(
        "list", section="members", title=now["username"], acts=buttons(at, member_id=member_id)("delete_member"),
        told_link=at.url("invite", member_id) if at.person.may("manage") else "",
        facts=[("role", ROLE_WORDS[now["role"]]), ("e-mail", now["email"]), ("team", now["team"])], bare=True,
        form=_form("Change it", "Change", made, at.url("member", member_id)), may_make=at.person.may("manage"),
        refused=made.refused,
    )  # fmt: skip


@require_POST
@page
def invitation(at: At, member_id: UUID) -> HttpResponse:
    """A link by which a member chooses its first password; it is shown once, to be handed on."""
    at.person.require("manage")
    try:
        user = invite(at.person.tenant.pk, member_id)
    except Conflict as error:
        messages.error(at.request, error.message)
        return redirect(at.url("member", member_id))
    where = reverse(
        "console:password_new",
        args=[urlsafe_base64_encode(force_bytes(user.pk)), default_token_generator.make_token(user)],
    )
    link = at.request.build_absolute_uri(conf().public_url + where)
    title = f"Give {user.get_username()} this link: by it a password is chosen, once and within three days."
    return at.show("once", section="members", title=title, secret=link, back=at.url("members"))
