"""Settings of a laptop: where the URLs are not given, those of the servers that `make up` runs are taken."""

from importlib.util import find_spec

from slackwater.settings.local import adopt_local_servers

adopt_local_servers()

from slackwater.settings.base import *  # noqa: E402  (base reads the environment when it is imported)
from slackwater.settings.base import SLACKWATER  # noqa: E402
from slackwater.settings.place import ROOT as _ROOT  # noqa: E402

SLACKWATER["DEMO_HANDLERS"] = True
# The worked example of the documentation is at hand without a setting.
_PHOTOS = "examples.photos.handlers"
_there = (_ROOT / "examples" / "photos" / "handlers.py").exists() and find_spec("PIL") is not None
if _there and _PHOTOS not in SLACKWATER.get("HANDLERS", ()):
    SLACKWATER["HANDLERS"] = [*SLACKWATER.get("HANDLERS", ()), _PHOTOS]
