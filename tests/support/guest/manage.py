"""A project of somebody else's, beside which Slackwater is installed."""

import os
import sys

from django.core.management import execute_from_command_line

for name in os.environ["GUEST_LACKS"].split():
    sys.modules[name] = None  # type: ignore[assignment]  # as if it were not installed
os.environ["DJANGO_SETTINGS_MODULE"] = "guest.settings"
execute_from_command_line(sys.argv)
