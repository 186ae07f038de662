"""The price list that ships: plans, and what an hour of the shared tiers costs. Operators edit both in the admin.

Prices are in millionths of the unit the platform charges in. Each plan but ``standard``, which is for those who run the
platform for themselves, is there after the first ``migrate``.
"""

from __future__ import annotations

from typing import Any, Final

TIER_HOUR_MICROS: Final = {"basic": 10_000, "regular": 40_000, "premium": 160_000}
DEMOS: Final = {"demo": ("Demo", "enterprise"), "demo-free": ("Demo, free of charge", "free")}
"""Tenants to try the plans with, by slug: name and plan."""
MIB: Final = 1_048_576
PLANS: Final[dict[str, dict[str, Any]]] = {
    "standard": {"name": "Standard", "dead_letter_retries": 1},
    "free": {
        "name": "Free",
        "tasks_per_hour": 100,
        "burst": 50,
        "max_waiting": 500,
        "max_in_flight": 2,
        "rate_starts": 30,
        "tiers": ["basic"],
        "max_artifact_bytes": MIB,
        "max_upload_bytes": 64 * MIB,
        "max_own_tiers": 0,
        "largest_tier": {},
        "max_cap_s": 300,
        "max_payload_bytes": 16_384,
        "max_dag_tasks": 50,
        "max_dag_edges": 200,
        "max_dag_depth": 20,
        "max_urgent_permille": 0,
        "maximum_permille": 250,
        "scripts": False,
        "max_checkpoint_bytes": MIB,
        "max_log_bytes": 65_536,
        "max_stream_bytes": MIB,
        "dead_letter_retries": 1,
        "price_permille": {"urgent": 0, "delayable": 0, "periodic": 0, "offpeak": 0},
        "retention_days": 7,
    },
    "basic": {
        "name": "Basic",
        "tasks_per_hour": 5_000,
        "burst": 1_000,
        "max_waiting": 20_000,
        "max_in_flight": 20,
        "rate_starts": 600,
        "tiers": ["basic", "regular"],
        "max_own_tiers": 2,
        "largest_tier": {"cpu_milli": 500, "memory_mb": 2_048, "disk_mb": 4_096, "iops": 500, "bandwidth_kbps": 50_000},
        "max_cap_s": 3_600,
        "max_payload_bytes": 65_536,
        "max_dag_tasks": 1_000,
        "max_dag_edges": 5_000,
        "max_dag_depth": 100,
        "max_urgent_permille": 100,
        "weight": 2,
        "maximum_permille": 500,
        "dead_letter_retries": 2,
        "price_micros_per_attempt": 10,
        "price_permille": {"urgent": 2_000, "delayable": 1_000, "periodic": 1_000, "offpeak": 500},
        "retention_days": 30,
    },
    "pro": {
        "name": "Pro",
        "tasks_per_hour": 50_000,
        "burst": 10_000,
        "max_waiting": 200_000,
        "max_in_flight": 200,
        "rate_starts": 6_000,
        "max_cap_s": 14_400,
        "max_payload_bytes": 131_072,
        "max_dag_tasks": 10_000,
        "max_dag_edges": 50_000,
        "max_dag_depth": 500,
        "max_urgent_permille": 300,
        "weight": 4,
        "dead_letter_retries": 3,
        "price_micros_per_attempt": 8,
        "price_permille": {"urgent": 1_800, "delayable": 1_000, "periodic": 1_000, "offpeak": 450},
        "retention_days": 90,
    },
    "enterprise": {
        "name": "Enterprise",
        "tasks_per_hour": 1_000_000,
        "burst": 50_000,
        "max_waiting": 5_000_000,
        "max_own_tiers": 50,
        "largest_tier": {
            "cpu_milli": 16_000,
            "memory_mb": 65_536,
            "disk_mb": 409_600,
            "iops": 40_000,
            "bandwidth_kbps": 4_000_000,
            "ports": 64,
        },
        "weight": 8,
        "guaranteed_permille": 50,
        "dead_letter_retries": 5,
        "price_micros_per_attempt": 5,
        "price_permille": {"urgent": 1_500, "delayable": 900, "periodic": 900, "offpeak": 400},
        "retention_days": 365,
    },
}
"""By slug; what is not named has the default of a new plan."""


def ship(plans: Any) -> None:
    """Make those that are missing; ``plans``: the model, which in a migration may not have every field yet."""
    known = {field.name for field in plans._meta.get_fields()}
    for slug, numbers in PLANS.items():
        if slug != "standard":
            told = {name: value for name, value in numbers.items() if name in known}
            plans.objects.get_or_create(slug=slug, defaults=told)
