"""The tenant itself: the organisation, its teams, its users and their roles."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from scheduler_ext.core.errors import InvalidInput
from slackwater_api.http.auth import Principal, remembered
from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import ANY, MANAGE, READ, ApiView, created
from slackwater_api.http.index import VERSION
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.http.sorting import Column, PagedList, each, moment
from slackwater_api.v1.shapes import organization as shapes
from slackwater_api.v1.shapes.common import as_shape, listing
from slackwater_tenants import members, services
from slackwater_tenants.models import Membership, Team, Tenant
from slackwater_tenants.services import paused_by


def _organization(principal: Principal) -> dict[str, Any]:
    tenant, member = principal.tenant, principal.key.member
    return as_shape(
        shapes.OrganizationOut,
        tenant,
        plan=tenant.plan.slug,
        paused_by=paused_by(tenant.paused, tenant.paused_by_itself),
        scopes=sorted(principal.scopes),
        member_id=member.public_id if member else None,
        role=member.role if member else None,
    )


class Whoami(ApiView, path="whoami", tag="organisation"):
    @describe("whoami", "Get who you are by your key", ANY, {200: shapes.WhoAmI})
    def get(self, request: Request) -> Response:
        """The key, what it may do, its organisation, plan and user; every key may ask."""
        key, tenant, member = self.principal.key, self.tenant, self.principal.key.member
        found = {
            "version": VERSION,
            "key": as_shape(shapes.OwnKey, key, id=key.prefix),
            "scopes": sorted(self.principal.scopes),
            "organization": as_shape(shapes.OwnOrganization, tenant, plan=tenant.plan.slug),
            "member": None,
        }
        if member is not None:
            username = member.user.get_username()
            found["member"] = as_shape(shapes.OwnMember, member, id=member.public_id, username=username)
        return Response(found)


class Organization(ApiView, path="organization", tag="organisation"):
    @describe("get_organization", "Get your organisation and what your key may do", READ, {200: shapes.OrganizationOut})
    def get(self, request: Request) -> Response:
        return Response(_organization(self.principal))

    @describe(
        "change_organization",
        "Rename your organisation, or pause it",
        MANAGE,
        {200: shapes.OrganizationOut},
        body=shapes.OrganizationChange,
        conditional=True,
        examples=[
            request_example("another name", {"name": "Acme Ltd"}),
            request_example("pause all work", {"paused": True}),
        ],
    )
    def patch(self, request: Request) -> Response:
        """Its slug stays, for keys, metrics and logs carry it. Time paused does not count against delay tolerances."""
        with self.unchanged(Tenant.objects.filter(pk=self.tenant.pk)):
            services.change_tenant(self.tenant, read_json(request._request))
        remembered.forget()
        return self.get(request)


# -- teams ------------------------------------------------------------------------------------------------------------
def _team(row: Any) -> dict[str, Any]:
    return as_shape(shapes.TeamOut, row)


class Teams(ApiView, path="teams", tag="organisation"):
    @describe("list_teams", "List teams", READ, {200: listing(shapes.TeamOut)})
    def get(self, request: Request) -> Response:
        return Response({"items": [_team(row) for row in members.teams(self.tenant.pk)]})

    @describe(
        "create_team",
        "Create a team",
        MANAGE,
        {201: shapes.TeamOut},
        problems=(409,),
        body=shapes.TeamIn,
        examples=[request_example("a team", {"slug": "billing", "name": "Billing"})],
    )
    def post(self, request: Request) -> Response:
        made = members.create_team(self.tenant, read_json(request._request))
        return created(_team(made), f"/api/v1/teams/{made.slug}")


class OneTeam(ApiView, path="teams/<str:team_slug>", tag="organisation"):
    @describe("get_team", "Get a team", READ, {200: shapes.TeamOut})
    def get(self, request: Request, team_slug: str) -> Response:
        """One team; who belongs to it: ``/members?team=SLUG``."""
        return Response(_team(members.get_team(self.tenant.pk, team_slug)))

    @describe(
        "change_team",
        "Rename a team",
        MANAGE,
        {200: shapes.TeamOut},
        body=shapes.TeamChange,
        conditional=True,
        examples=[request_example("another name", {"name": "Billing and tax"})],
    )
    def patch(self, request: Request, team_slug: str) -> Response:
        """Its slug stays."""
        with self.unchanged(Team.objects.filter(tenant=self.tenant, slug=team_slug)):
            changed = members.rename_team(self.tenant.pk, team_slug, read_json(request._request))
        return Response(_team(changed))

    @describe("delete_team", "Remove a team", MANAGE, {204: None}, conditional=True)
    def delete(self, request: Request, team_slug: str) -> Response:
        """Its users stay members of the organisation."""
        with self.unchanged(Team.objects.filter(tenant=self.tenant, slug=team_slug)):
            members.delete_team(self.tenant.pk, team_slug)
        return Response(status=204)


# -- members ----------------------------------------------------------------------------------------------------------
def _member(row: Membership) -> dict[str, Any]:
    user, team = row.user, row.team.slug if row.team else None
    return as_shape(shapes.MemberOut, row, id=row.public_id, username=user.get_username(), email=user.email, team=team)


MEMBERS = PagedList(
    present=each(_member),
    columns={"created_at": Column("created_at", moment), "role": Column("role")},
    default="created_at",
    tie=Column("public_id", UUID, "id"),
)


class Members(ApiView, path="members", tag="organisation"):
    @describe(
        "list_members",
        "List users",
        READ,
        {200: listing(shapes.MemberOut)},
        OpenApiParameter("team", str, description="A team's slug."),
        OpenApiParameter("role", str, enum=shapes.ROLES),
        *MEMBERS.parameters,
    )
    def get(self, request: Request) -> Response:
        query, rows = request.query_params, members.members(self.tenant.pk)
        if "team" in query:
            rows = rows.filter(team__slug=query["team"])
        if "role" in query:
            if query["role"] not in shapes.ROLES:
                raise InvalidInput(f"must be one of {', '.join(shapes.ROLES)}", field="role")
            rows = rows.filter(role=query["role"])
        return Response(MEMBERS.page(query, rows))

    @describe(
        "create_member",
        "Create a user",
        MANAGE,
        {201: shapes.MemberOut},
        problems=(409,),
        body=shapes.MemberIn,
        examples=[request_example("an operator", {"username": "ann", "email": "ann@example.org", "role": "operator"})],
    )
    def post(self, request: Request) -> Response:
        """Give it keys of its own under ``/keys``."""
        made = members.create_member(self.tenant, read_json(request._request))
        return created(_member(made), f"/api/v1/members/{made.public_id}")


class OneMember(ApiView, path="members/<uuid:member_id>", tag="organisation"):
    @describe("get_member", "Get a user", READ, {200: shapes.MemberOut})
    def get(self, request: Request, member_id: UUID) -> Response:
        return Response(_member(members.get_member(self.tenant.pk, member_id)))

    @describe(
        "change_member",
        "Change a user's role, team or address",
        MANAGE,
        {200: shapes.MemberOut},
        problems=(409,),
        body=shapes.MemberChange,
        conditional=True,
        examples=[request_example("promote", {"role": "owner"})],
    )
    def patch(self, request: Request, member_id: UUID) -> Response:
        """Its keys follow the role within a second; the last owner stays one."""
        with self.unchanged(members.members(self.tenant.pk).filter(public_id=member_id)):
            changed = members.change_member(self.tenant.pk, member_id, read_json(request._request))
        remembered.forget()
        return Response(_member(changed))

    @describe("delete_member", "Remove a user with its keys", MANAGE, {204: None}, problems=(409,), conditional=True)
    def delete(self, request: Request, member_id: UUID) -> Response:
        """The last owner stays."""
        with self.unchanged(members.members(self.tenant.pk).filter(public_id=member_id)):
            members.remove_member(self.tenant.pk, member_id)
        remembered.forget()
        return Response(status=204)
