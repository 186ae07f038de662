"""The layout's traps: `platform` stays the standard library's, imports point downwards, files stay small."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("platform", "apps", "scheduler_ext")
LONGEST_SOURCE = 500
LONGEST_TEST = 400


def sources() -> list[Path]:
    """Return every source file, migrations aside, which are written by Django."""
    found = [path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if "migrations" not in path.parts]


@pytest.mark.parametrize("folder", ["platform", "apps", "docker"])
def test_a_folder_named_like_a_module_is_no_package(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("code", ["import platform; platform.system()", "import uuid", "import django, celery, redis"])
def test_the_standard_library_keeps_its_platform_module(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_nothing_in_platform_shadows_a_library() -> None:
    assert {path.name for path in (ROOT / "platform").iterdir() if path.name != "__pycache__"} == {"slackwater"}


@pytest.mark.timeout(300)
def test_imports_point_downwards() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_source_files_are_short_enough_to_know() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_SOURCE} == {}


def test_test_files_are_short_enough_to_know() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > LONGEST_TEST} == {}


def test_every_package_has_its_init() -> None:
    """A folder without one is found from the root, but left out of a wheel and of mypy's packages."""
    folders = {path.parent for path in sources()} - {ROOT / "platform", ROOT / "apps"}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
