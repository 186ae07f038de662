"""What is done to an uploaded photo: plain functions, exported so that tenants may have them run.

A worker imports this module because its setting SLACKWATER_HANDLERS names it (`make up` names it by itself). All files
lie under one folder that client and workers share: PHOTOS_ROOT, by default var/photos. In a real deployment that would
be an object store; nothing else here would change.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from slackwater import current, handler

ROOT = Path(os.environ.get("PHOTOS_ROOT") or Path(os.environ.get("SLACKWATER_VAR") or "var") / "photos").resolve()
INDEX = ROOT / "published" / "index.json"
SAME = 6
"""Two photos whose hashes differ in no more bits than this, of 64, show the same picture."""
MAX_PIXELS = 80_000_000


def inside(name: str) -> Path:
    """A path under the shared folder; a name that leads out of it is refused."""
    path = (ROOT / name).resolve()
    if not path.is_relative_to(ROOT):
        raise ValueError(f"{name!r} lies outside the folder of photos")
    return path


def write(path: Path, content: bytes) -> None:
    """Replace a file at once. A handler that runs twice, or is killed half way, leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as draft:
        draft.write(content)
    Path(draft.name).chmod(0o644)
    Path(draft.name).replace(path)


def open_photo(name: str) -> Image.Image:
    """The picture, upright, as its camera's orientation says."""
    with Image.open(inside(name)) as image:
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{name} has {image.width} x {image.height} pixels, more than {MAX_PIXELS}")
        return ImageOps.exif_transpose(image).convert("RGB")


@handler(name="photos.receive", idempotent=True)
def receive(photo: str) -> dict[str, Any]:
    """Check that the upload is a picture, and tell what it is. Everything else waits for this."""
    image = open_photo(photo)
    content = inside(photo).read_bytes()
    return {
        "width": image.width,
        "height": image.height,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


@handler(name="photos.resize", idempotent=True)
def resize(photo: str, width: int) -> dict[str, Any]:
    """Make one resolution: a WebP of that width, never larger than the photo."""
    image = open_photo(photo)
    image.thumbnail((width, width * 10), Image.Resampling.LANCZOS)
    name = f"renditions/{Path(photo).name}-{width}.webp"
    path = inside(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{current().task_id}")
    image.save(draft, "WEBP", quality=80)
    draft.replace(path)
    return {"file": name, "width": image.width, "height": image.height, "bytes": path.stat().st_size}


def fingerprint(image: Image.Image) -> int:
    """A perceptual hash of 64 bits: is each spot of an 8 x 8 grid brighter than its right neighbour?

    It stays nearly the same when a picture is scaled, brightened or saved anew; a file's checksum does not.
    """
    grey = image.convert("L").resize((9, 8), Image.Resampling.BOX).tobytes()
    bits = (grey[9 * y + x] > grey[9 * y + x + 1] for y in range(8) for x in range(8))
    return sum(bit << place for place, bit in enumerate(bits))


def published() -> dict[str, dict[str, Any]]:
    """The photos that are published, by name."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(INDEX.read_text())
    except FileNotFoundError:
        return {}
    return found


def twin_of(photo: str, hashed: int) -> str | None:
    """The published photo that shows the same picture, if there is one."""
    for name, entry in published().items():
        if name != photo and (int(entry["hash"], 16) ^ hashed).bit_count() <= SAME:
            return name
    return None


@handler(name="photos.fingerprint", idempotent=True)
def look_for_duplicate(photo: str) -> dict[str, Any]:
    """Compare the picture with all that are published."""
    hashed = fingerprint(open_photo(photo))
    return {"hash": f"{hashed:016x}", "duplicate_of": twin_of(photo, hashed)}


@handler(name="photos.publish", idempotent=True)
def publish(photo: str) -> dict[str, Any]:
    """Put the photo into the gallery, unless it is there already. Reads the results of all it depends on.

    Only one of these runs at a time (they share a mutex key), so the duplicate check is repeated here: two uploads of
    one picture that were checked at the same moment do not both get in.
    """
    results = current().upstream()
    hashed = results["duplicates"]["hash"]
    twin = results["duplicates"]["duplicate_of"] or twin_of(photo, int(hashed, 16))
    if twin is not None:
        return {"published": False, "duplicate_of": twin}
    renditions = [results[name] for name in sorted(results) if name.startswith("resize-")]
    entry = {
        "hash": hashed,
        "original": results["receive"],
        "renditions": sorted(renditions, key=lambda r: r["width"]),
    }
    index = {**published(), photo: entry}
    write(INDEX, json.dumps(index, indent=1).encode())
    page = ROOT / "published" / "index.html"
    write(page, gallery(index).encode())
    return {"published": True, "page": str(page), "renditions": [r["file"] for r in entry["renditions"]]}


def gallery(index: dict[str, dict[str, Any]]) -> str:
    """The gallery as a page: each photo in the resolution that the reader's screen asks for."""
    figures = []
    for name, entry in index.items():
        shown = html.escape(Path(name).name)
        sources = ", ".join(f"../{html.escape(r['file'])} {r['width']}w" for r in entry["renditions"])
        smallest = html.escape(entry["renditions"][0]["file"])
        figures.append(
            f'<figure><img src="../{smallest}" srcset="{sources}" sizes="50vw" alt="{shown}">'
            f"<figcaption>{shown}</figcaption></figure>"
        )
    style = "body{font:16px sans-serif;margin:2rem}img{width:50vw}figure{margin:0 0 2rem}"
    return f"<!doctype html><meta charset=utf-8><title>Photos</title><style>{style}</style>{''.join(figures)}\n"
