"""What every page of the console has: who looks at it in which tenant, its answer, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from scheduler_ext.core.errors import NotFound, NotPermitted
from slackwater_console.person import ROLE_WORDS, Person, memberships, person_in
from slackwater_console.rest import Refused, ask

NAVIGATION: Final = (
    ("tasks", "Tasks", "read"),
    ("handlers", "Submit", "submit"),
    ("workflows", "Workflows", "read"),
    ("schedules", "Schedules", "read"),
    ("dead_letters", "Dead letters", "read"),
    ("usage", "Usage and bill", "read"),
    ("limits", "Limits", "read"),
    ("webhooks", "Webhooks", "read"),
    ("keys", "Keys", "manage"),
    ("members", "Members", "read"),
)
"""The pages of the side bar, and the scope that each needs."""
PAGE_ROWS: Final = 50
NOT_BY_ROLE: Final = "Your role does not allow it."
"""What the interface says of a key's scopes: who looks at a page has none."""


@dataclass(frozen=True, slots=True)
class At:
    """A person at a page of its tenant."""

    request: HttpRequest
    person: Person

    @property
    def slug(self) -> str:
        """The tenant's, which stands in each address."""
        return self.person.tenant.slug

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """What the REST interface answers to the person."""
        return ask(self.person, method, path, body=body, **more)

    def get(self, path: str, **query: Any) -> Any:
        """The same, read."""
        return ask(self.person, "GET", path, query=query)

    def url(self, name: str, *args: Any) -> str:
        """A page of the same tenant."""
        return reverse(f"console:{name}", args=[self.slug, *args])

    def show(self, template: str, *, status: int = 200, **context: Any) -> HttpResponse:
        """A page of the console."""
        person = self.person
        here = self.request.resolver_match.url_name if self.request.resolver_match else ""
        shown = {
            "slug": self.slug,
            "person": person,
            "role": ROLE_WORDS[person.member.role],
            "tenants": [member.tenant for member in memberships(person.member.user)],
            "may": {scope: person.may(scope) for scope in ("submit", "cancel", "manage")},
            "navigation": [
                (self.url(name), label, name in {here, context.get("section")})
                for name, label, scope in NAVIGATION
                if person.may(scope)
            ],
        }
        return render(self.request, f"slackwater_console/{template}.html", {**shown, **context}, status=status)

    def check_query(self, known: Collection[str]) -> None:
        """``Refused`` for a parameter of the address that the page does not know: it is not passed over in silence."""
        words = ", ".join(known) or "none"
        for name, values in self.request.GET.lists():
            fault = "is given more than once" if len(values) > 1 else f"there is no such filter; known are {words}"
            if len(values) > 1 or name not in known:
                raise Refused(422, {"title": "Invalid input", "field": name[:60], "detail": fault})

    def list(
        self, path: str, row: Callable[[At, dict[str, Any]], Any], known: tuple[str, ...] = (), **more: Any
    ) -> dict[str, Any]:
        """A page of a list as its template takes it: rows, the filters asked for, where the next page is, a refusal.

        ``more``: what is asked of the interface beside that.
        """
        asked = {name: text for name in known if (text := self.request.GET.get(name, "").strip())}
        page = {name: self.request.GET[name] for name in ("cursor",) if name in self.request.GET}
        found: dict[str, Any] = {"items": []}
        refused = ""
        try:
            self.check_query((*known, "cursor"))
            found = self.get(path, limit=PAGE_ROWS, **asked, **page, **more)
        except Refused as error:
            if error.status != 422:
                raise
            refused = error.words
        following = found.get("next_cursor")
        return {
            "rows": [row(self, item) for item in found["items"]],
            "asked": asked,
            "refused": refused,
            "next": urlencode({**asked, "cursor": following}) if following else "",
            "further": following and len(found["items"]) < PAGE_ROWS,
            "first": urlencode(asked) if page else None,
        }


def page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A view of somebody who is logged in, and a member of the tenant in the address: nobody else learns that it exists."""

    @never_cache
    @login_required(login_url="console:login")
    @wraps(view)
    def shown(request: HttpRequest, slug: str, **ids: Any) -> HttpResponseBase:
        at = At(request, person_in(request.user, slug))
        try:
            return view(at, **ids)
        except Refused as refused:
            words = NOT_BY_ROLE if "scope" in refused.problem else refused.words
            return at.show("refused", status=refused.status, title=refused.problem["title"], words=words)
        except NotPermitted:
            return at.show("refused", status=403, title="Not permitted", words=NOT_BY_ROLE)
        except (Http404, NotFound):
            return at.show("refused", status=404, title="Not found", words="There is nothing here.")

    return shown


def tell(at: At, refused: Refused) -> None:
    """Say on the next page why something was not done."""
    messages.error(at.request, refused.words)
