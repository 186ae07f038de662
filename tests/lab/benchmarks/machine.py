"""The machine a figure was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil


def describe(servers: str) -> str:
    """Processor, memory, system, Python and servers in one sentence."""
    memory = psutil.virtual_memory().total / 2**30
    cores = os.cpu_count() or 1
    hardware = f"{cores} cores ({_processor()}), {memory:.0f} GiB"
    return f"{hardware}, {_system()}, Python {platform.python_version()}, {servers}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        name = "Linux"
    return f"{name} with kernel {platform.release().partition('-')[0]}"
