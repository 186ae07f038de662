"""The saved views above a list."""

from __future__ import annotations

from typing import Any

from django import template

from slackwater_dashboard import saved_views

register = template.Library()


@register.inclusion_tag("slackwater_adminkit/saved_views.html", takes_context=True)
def saved_views_above(context: dict[str, Any], cl: Any) -> dict[str, Any]:
    """The user's own, and a form that keeps what the list shows now."""
    page, query = cl.opts.label_lower, cl.get_query_string().removeprefix("?")
    request = context["request"]
    return {"views": saved_views.of(request, page), "page": page, "query": query, "request": request}
