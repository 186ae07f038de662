"""``python -m scheduler_ext.runner``: run scripts in containers for the workers of a node."""

from __future__ import annotations

import asyncio
import logging
import sys

from scheduler_ext.runner.engine import EngineError
from scheduler_ext.runner.options import parse
from scheduler_ext.runner.service import Service
from scheduler_ext.sandbox.base import SlotError


def main() -> None:
    """Serve until SIGTERM; leaves with a message where it cannot."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s runner: %(message)s")
    try:
        asyncio.run(Service(parse(sys.argv[1:])).run())
    except (EngineError, SlotError, OSError, ValueError) as error:
        sys.exit(f"runner: {error}")


if __name__ == "__main__":
    main()
