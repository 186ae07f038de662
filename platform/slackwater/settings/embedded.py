"""Settings of a laptop: where the URLs are not given, those of the servers that `make up` runs are taken."""

from slackwater.settings.local import adopt_local_servers

adopt_local_servers()

from slackwater.settings.base import *  # noqa: E402  (base reads the environment when it is imported)

DEMO_HANDLERS = True
