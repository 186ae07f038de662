"""Copies what the site shows into one folder, in the places it has in the repository, so that every link still holds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
BEGIN: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples")
LINK: Final = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def stage(target: Path) -> list[Path]:
    """Copy the pages, and each file that one of them links; returns the pages."""
    shutil.rmtree(target, ignore_errors=True)
    waiting = [page for name in BEGIN for page in _pages(ROOT / name)]
    staged: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in staged or not file.is_file():
            continue
        staged.add(file)
        place = target / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        if file.suffix == ".md":
            waiting += [found for found in _linked(file) if found.is_relative_to(ROOT)]
    return sorted(file for file in staged if file.suffix == ".md")


def _pages(place: Path) -> Iterator[Path]:
    yield from place.rglob("*.md") if place.is_dir() else [place]


def _linked(page: Path) -> Iterator[Path]:
    for link in LINK.findall(page.read_text()):
        if "://" not in link and not link.startswith("mailto:"):
            yield (page.parent / link).resolve()
