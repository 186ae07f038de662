"""Settings of a laptop: where the URLs are not given, those of the servers that `make up` runs are taken."""

from slackwater.settings.local import adopt_local_servers

adopt_local_servers()

from slackwater.settings.base import *  # noqa: E402  (base reads the environment when it is imported)
from slackwater.settings.base import HANDLERS  # noqa: E402
from slackwater.settings.environment import ROOT  # noqa: E402

DEMO_HANDLERS = True
# The worked example of the documentation is at hand without a setting.
PHOTOS = "examples.photos.handlers"
if (ROOT / "examples" / "photos" / "handlers.py").exists() and PHOTOS not in HANDLERS:
    HANDLERS = [*HANDLERS, PHOTOS]
