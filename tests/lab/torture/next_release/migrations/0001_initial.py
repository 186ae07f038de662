"""What this release has."""

import importlib

Migration = importlib.import_module("slackwater_tasks.migrations.0001_initial").Migration
