"""The plain level: a process of its own session with resource limits. Only for tenants marked trusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scheduler_ext.sandbox.base import Launch, Limits

MIB = 1024 * 1024


class ProcessSandbox:
    """No containment beyond rlimits set by ``prlimit`` before the script begins."""

    level = "process"
    contains_untrusted = False

    def prepare(self, script: Path, work: Path, env: Mapping[str, str], limits: Limits) -> Launch:
        """Start the script through a shell that sets the limits and then becomes it.

        Memory is limited per process (RLIMIT_AS, twice the tier's: address space is not memory), file size by disk.
        """
        sets = [
            f"ulimit -v {limits.memory_mb * 2 * 1024}",
            f"ulimit -f {max(1, limits.disk_mb) * MIB // 512}",
            "ulimit -c 0",
        ]
        shell = " && ".join(sets) + ' && exec "$0"'
        return Launch(argv=("/bin/sh", "-c", shell, str(script)), env=dict(env), cwd=work)
