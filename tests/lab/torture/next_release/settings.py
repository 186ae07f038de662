"""Settings of a local platform of the next release."""

from slackwater.settings.embedded import *  # noqa: F403 - settings are made of names

MIGRATION_MODULES = {"slackwater_tasks": "tests.lab.torture.next_release.migrations"}
