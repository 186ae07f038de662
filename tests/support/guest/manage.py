"""A project of somebody else's, beside which Slackwater is installed."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "guest.settings"
execute_from_command_line(sys.argv)
