#!/usr/bin/env python3
"""Put platform/ and apps/ on the path and hand over to ``slackwater``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    root = Path(__file__).resolve().parent
    sys.path[:0] = [str(root / "platform"), str(root / "apps")]

    from slackwater.__main__ import manage

    manage()
