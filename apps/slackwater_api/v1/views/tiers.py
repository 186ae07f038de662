"""Tiers: the shared ones of the plan, and the tenant's own."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from slackwater_api.http.body import read_json
from slackwater_api.http.endpoint import MANAGE, READ, ApiView, created
from slackwater_api.http.openapi import describe, request_example
from slackwater_api.v1.shapes import organization as shapes
from slackwater_api.v1.shapes.common import listing
from slackwater_api.v1.shapes.platform import TierOut
from slackwater_resources import own_tiers
from slackwater_tasks.ledger import reference_cache
from slackwater_tasks.read import overview

EXAMPLE = {"name": "wide", "cpu_milli": 2000, "memory_mb": 2048, "default_execution_cap_s": 900}


class Tiers(ApiView, path="tiers", tag="tiers"):
    @describe("list_tiers", "List the tiers you may name", READ, {200: listing(TierOut)})
    def get(self, request: Request) -> Response:
        """The shared tiers of the plan, and the tenant's own."""
        return Response({"items": overview.tiers(self.tenant)})

    @describe(
        "create_tier",
        "Create a tier of your own",
        MANAGE,
        {201: TierOut},
        problems=(409,),
        body=shapes.TierIn,
        examples=[request_example("wide", EXAMPLE)],
    )
    def post(self, request: Request) -> Response:
        """Within the plan; it costs what the shared tiers would for the same resources."""
        tenant = self.tenant
        made = own_tiers.create_tier(tenant, read_json(request._request))
        reference_cache.forget_tiers(tenant.pk)
        return created(overview.tier(made), f"/api/v1/tiers/{made.slug}")


class OneTier(ApiView, path="tiers/<str:tier_name>", tag="tiers"):
    @describe("get_tier", "Get a tier", READ, {200: TierOut})
    def get(self, request: Request, tier_name: str) -> Response:
        return Response(overview.tier(own_tiers.get_tier(self.tenant, tier_name)))

    @describe(
        "change_tier",
        "Change a tier of your own",
        MANAGE,
        {200: TierOut},
        body=shapes.TierChange,
        conditional=True,
        examples=[request_example("more memory", {"memory_mb": 4096})],
    )
    def patch(self, request: Request, tier_name: str) -> Response:
        """It counts from the next round on, for the tasks that wait too."""
        tenant = self.tenant
        with self.unchanged(own_tiers.own_tiers(tenant.pk).filter(slug=tier_name)):
            changed = own_tiers.change_tier(tenant, tier_name, read_json(request._request))
        reference_cache.forget_tiers(tenant.pk)
        return Response(overview.tier(changed))

    @describe("delete_tier", "Delete a tier of your own", MANAGE, {204: None}, conditional=True)
    def delete(self, request: Request, tier_name: str) -> Response:
        """New tasks cannot name it; the tasks that have it keep it."""
        tenant = self.tenant
        with self.unchanged(own_tiers.own_tiers(tenant.pk).filter(slug=tier_name)):
            own_tiers.retire_tier(tenant, tier_name)
        reference_cache.forget_tiers(tenant.pk)
        return Response(status=204)
