"""The tenant itself: the organisation, its teams, its users and their roles."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.auth import Principal, remembered
from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import MANAGE, READ, ApiView, created
from slackwater_api.http.openapi import PAGING, describe, request_example
from slackwater_api.http.operation import unchanged
from slackwater_api.http.sorting import Column, Sorting, whole
from slackwater_api.v1.shapes import organization as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_tenants import members, services
from slackwater_tenants.models import Membership, Team, Tenant
from slackwater_tenants.services import paused_by

TEAM = OpenApiParameter("team_slug", str, OpenApiParameter.PATH, description="The team's slug.")
MEMBER = OpenApiParameter("member_id", OpenApiTypes.INT64, OpenApiParameter.PATH, description="The member's id.")
MEMBERS = Sorting(
    columns={"id": Column("id", whole, "id"), "role": Column("role")},
    default="id",
    tie=Column("id", whole, "id"),
)


def _organization(principal: Principal) -> dict[str, Any]:
    tenant, member = principal.tenant, principal.key.member
    return {
        "slug": tenant.slug, "name": tenant.name, "plan": tenant.plan.slug, "cell": tenant.cell,
        "paused": tenant.paused, "paused_by": paused_by(tenant.paused, tenant.paused_by_itself),
        "created_at": tenant.created_at, "scopes": sorted(principal.scopes),
        "member": member.pk if member else None, "role": member.role if member else None,
    }  # fmt: skip


class Organization(ApiView):
    """``/api/v1/organization``"""

    scopes = {"GET": READ, "PATCH": MANAGE}

    @describe(
        "get_organization",
        summary="Look at your organisation and what your key may do",
        tag="organisation",
        scope=READ,
        answers={200: shapes.OrganizationOut},
    )
    def get(self, request: Request) -> Response:
        """The tenant of the key."""
        return Response(_organization(self.principal))

    @describe(
        "change_organization",
        conditional=True,
        summary="Rename your organisation, or pause it",
        tag="organisation",
        scope=MANAGE,
        body=shapes.OrganizationChange,
        answers={200: shapes.OrganizationOut},
        examples=[
            request_example("another name", {"name": "Acme Ltd"}),
            request_example("pause all work", {"paused": True}),
        ],
    )
    def patch(self, request: Request) -> Response:
        """Its slug stays, for keys, metrics and logs carry it. Time paused does not count against delay tolerances."""
        principal = self.principal
        rows = Tenant.objects.filter(pk=principal.tenant.pk)
        with unchanged(request, rows, lambda: _organization(principal)):
            services.change_tenant(principal.tenant, read_json(request._request))
        remembered.forget()
        return Response(_organization(principal))


# -- teams ------------------------------------------------------------------------------------------------------------
def _team(row: Any) -> dict[str, Any]:
    return {"slug": row.slug, "name": row.name, "members": row.members, "created_at": row.created_at}


class Teams(ApiView):
    """``/api/v1/teams``"""

    scopes = {"GET": READ, "POST": MANAGE}

    @describe(
        "list_teams",
        summary="List teams",
        tag="organisation",
        scope=READ,
        answers={200: listing(shapes.TeamOut, paged=False)},
    )
    def get(self, request: Request) -> Response:
        """All teams, by slug."""
        return Response({"items": [_team(row) for row in members.teams(self.principal.tenant.pk)]})

    @describe(
        "create_team",
        summary="Make a team",
        tag="organisation",
        scope=MANAGE,
        body=shapes.TeamIn,
        answers={201: shapes.TeamOut},
        problems=(409,),
        examples=[request_example("a team", {"slug": "billing", "name": "Billing"})],
    )
    def post(self, request: Request) -> Response:
        """A group of users."""
        made = members.create_team(self.principal.tenant, read_json(request._request))
        return created(_team(made), f"/api/v1/teams/{made.slug}", new=True)


class OneTeam(ApiView):
    """``/api/v1/teams/{slug}``"""

    scopes = {"GET": READ, "PATCH": MANAGE, "DELETE": MANAGE}

    @describe(
        "get_team",
        summary="Look at a team",
        tag="organisation",
        scope=READ,
        answers={200: shapes.TeamOut},
        problems=(404,),
        parameters=[TEAM],
    )
    def get(self, request: Request, team_slug: str) -> Response:
        """One team; who belongs to it: ``/members?team=SLUG``."""
        return Response(_team(members.get_team(self.principal.tenant.pk, team_slug)))

    @describe(
        "change_team",
        conditional=True,
        summary="Rename a team",
        tag="organisation",
        scope=MANAGE,
        body=shapes.TeamChange,
        answers={200: shapes.TeamOut},
        problems=(404,),
        parameters=[TEAM],
        examples=[request_example("another name", {"name": "Billing and tax"})],
    )
    def patch(self, request: Request, team_slug: str) -> Response:
        """Its slug stays."""
        with self._unchanged(request, team_slug):
            changed = members.rename_team(self.principal.tenant.pk, team_slug, read_json(request._request))
        return Response(_team(changed))

    @describe(
        "delete_team",
        conditional=True,
        summary="Remove a team",
        tag="organisation",
        scope=MANAGE,
        answers={204: None},
        problems=(404,),
        parameters=[TEAM],
    )
    def delete(self, request: Request, team_slug: str) -> Response:
        """Its users stay members of the organisation."""
        with self._unchanged(request, team_slug):
            members.delete_team(self.principal.tenant.pk, team_slug)
        return Response(status=204)

    def _unchanged(self, request: Request, slug: str) -> AbstractContextManager[None]:
        tenant_id = self.principal.tenant.pk
        rows = Team.objects.filter(tenant_id=tenant_id, slug=slug)
        return unchanged(request, rows, lambda: _team(members.get_team(tenant_id, slug)))


# -- members ----------------------------------------------------------------------------------------------------------
def _member(row: Membership) -> dict[str, Any]:
    return {
        "id": row.pk, "username": row.user.get_username(), "email": row.user.email, "role": row.role,
        "team": row.team.slug if row.team else None, "created_at": row.created_at,
    }  # fmt: skip


class Members(ApiView):
    """``/api/v1/members``"""

    scopes = {"GET": READ, "POST": MANAGE}

    @describe(
        "list_members",
        summary="List users",
        tag="organisation",
        scope=READ,
        answers={200: listing(shapes.MemberOut)},
        parameters=[
            OpenApiParameter("team", str, description="A team's slug."),
            OpenApiParameter("role", str, enum=shapes.ROLES),
            MEMBERS.parameter,
            *PAGING,
        ],
    )
    def get(self, request: Request) -> Response:
        """A page of the organisation's users."""
        query, rows = request._request.GET, members.members(self.principal.tenant.pk)
        if "team" in query:
            rows = rows.filter(team__slug=query["team"])
        if "role" in query:
            if query["role"] not in shapes.ROLES:
                raise InvalidInput(f"must be one of {', '.join(shapes.ROLES)}", field="role")
            rows = rows.filter(role=query["role"])
        return Response(MEMBERS.page(query, rows, lambda some: [_member(row) for row in some]))

    @describe(
        "create_member",
        summary="Make a user",
        tag="organisation",
        scope=MANAGE,
        body=shapes.MemberIn,
        answers={201: shapes.MemberOut},
        problems=(409,),
        examples=[request_example("an operator", {"username": "ann", "email": "ann@example.org", "role": "operator"})],
    )
    def post(self, request: Request) -> Response:
        """Give it keys of its own under ``/keys``."""
        made = members.create_member(self.principal.tenant, read_json(request._request))
        return created(_member(made), f"/api/v1/members/{made.pk}", new=True)


class OneMember(ApiView):
    """``/api/v1/members/{id}``"""

    scopes = {"GET": READ, "PATCH": MANAGE, "DELETE": MANAGE}

    @describe(
        "get_member",
        summary="Look at a user",
        tag="organisation",
        scope=READ,
        answers={200: shapes.MemberOut},
        problems=(404,),
        parameters=[MEMBER],
    )
    def get(self, request: Request, member_id: int) -> Response:
        """One user."""
        return Response(_member(members.get_member(self.principal.tenant.pk, member_id)))

    @describe(
        "change_member",
        conditional=True,
        summary="Change a user's role, team or address",
        tag="organisation",
        scope=MANAGE,
        body=shapes.MemberChange,
        answers={200: shapes.MemberOut},
        problems=(404, 409),
        parameters=[MEMBER],
        examples=[request_example("promote", {"role": "owner"})],
    )
    def patch(self, request: Request, member_id: int) -> Response:
        """Its keys follow the role within a second; the last owner stays one."""
        with self._unchanged(request, member_id):
            changed = members.change_member(self.principal.tenant.pk, member_id, read_json(request._request))
        remembered.forget()
        return Response(_member(changed))

    @describe(
        "delete_member",
        conditional=True,
        summary="Remove a user with its keys",
        tag="organisation",
        scope=MANAGE,
        answers={204: None},
        problems=(404, 409),
        parameters=[MEMBER],
    )
    def delete(self, request: Request, member_id: int) -> Response:
        """The last owner stays."""
        with self._unchanged(request, member_id):
            members.remove_member(self.principal.tenant.pk, member_id)
        remembered.forget()
        return Response(status=204)

    def _unchanged(self, request: Request, member_id: int) -> AbstractContextManager[None]:
        tenant_id = self.principal.tenant.pk
        rows = (
            Membership.objects.filter(tenant_id=tenant_id, pk=member_id)
            if member_id < 2**63
            else Membership.objects.none()
        )
        return unchanged(request, rows, lambda: _member(members.get_member(tenant_id, member_id)))
