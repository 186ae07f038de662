"""`slackwater verify-receipts`: asks no platform, so that whoever was sent receipts can check them."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from scheduler_ext.core.errors import ConfigurationError, InvalidInput
from slackwater import exit_codes
from slackwater.cli.show import Output


def verify_receipts(options: argparse.Namespace, out: Output) -> int:
    """Say what is wrong in a file of receipts; the exit code is 1 where anything is.

    ``InvalidInput``: a file cannot be read, or is none of these. ``ConfigurationError``: seals cannot be checked here.
    """
    try:
        from slackwater_monitoring.receipts import chain
    except ModuleNotFoundError as error:
        needed = f"seals are checked by {error.name}, which is not installed here: `pip install 'slackwater[receipts]'`"
        raise ConfigurationError(needed) from error
    try:
        with options.keys.open() as keys, options.file.open() as file:
            proof = chain.verify(chain.read(file), chain.read_keys(keys))
    except (OSError, ValueError) as error:
        raise InvalidInput(str(error)) from None
    bad = sum(proof.kinds.values())
    if out.as_json:
        out.value({**asdict(proof), "ok": not bad})
    else:
        if proof.findings:
            out.table([asdict(one) for one in proof.findings], ("number", "kind", "detail"))
        span = f", {proof.first} to {proof.last}" if proof.count else ""
        charged = f"{proof.charged_micros / 1_000_000:.6f}"
        out.line(f"{proof.count} receipts{span}; {proof.seals} seals; charged {charged}; {bad} faults")
    return exit_codes.FAILED if bad else 0
