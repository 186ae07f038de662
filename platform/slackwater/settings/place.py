"""Where the code lies and where its data goes; imports nothing, for the supervisor of `make up` needs no more."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The project, where the code is used from where it lies."""


def is_checkout() -> bool:
    """Whether the code is used from where it lies, not as an installed package."""
    return (ROOT / "manage.py").is_file()


def home_folder() -> Path:
    """Where data goes by default: the project; the user's folder for data where this is an installed package."""
    if is_checkout():
        return ROOT
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "slackwater"
