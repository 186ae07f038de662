"""Upload a photo: submit its workflow over REST and watch it. The standard library is all it needs.

. var/demo.env
python3 examples/photos/upload.py examples/photos/harbour.jpg
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

WIDTHS = (320, 800, 1600)
WAIT_S = 30


def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request to the API; a problem is told as the platform tells it."""
    request = urllib.request.Request(  # noqa: S310 - the address is the reader's own platform
        f"{os.environ['SLACKWATER_URL']}/api/v1{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['SLACKWATER_KEY']}",
            "Content-Type": "application/json",
        },
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S + 10) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code}: {error.read().decode()}")
    except urllib.error.URLError as error:
        sys.exit(f"nothing answers at {os.environ['SLACKWATER_URL']} ({error.reason}); is `make up` running?")


def workflow(photo: str) -> dict[str, Any]:
    """The graph: receive; then all resolutions and the duplicate check side by side; then publish."""
    side_by_side = [
        *(
            {
                "name": f"resize-{width}",
                "handler": "photos.resize",
                "args": [photo, width],
                "depends_on": ["receive"],
            }
            for width in WIDTHS
        ),
        {"name": "duplicates", "handler": "photos.fingerprint", "args": [photo], "depends_on": ["receive"]},
    ]
    needed = ["receive", *(task["name"] for task in side_by_side)]
    publish = {"name": "publish", "handler": "photos.publish", "args": [photo], "depends_on": needed}
    return {
        "name": f"upload {photo}",
        "tasks": [
            {"name": "receive", "handler": "photos.receive", "args": [photo], "total_attempts": 1},
            *side_by_side,
            # Somebody waits for it, and two of them must not write the gallery at once.
            {**publish, "category": "urgent", "mutex_key": "gallery"},
        ],
    }


def main() -> int:
    """Copy the photo into the shared folder, submit its workflow, wait, tell."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} PHOTO")
    if "SLACKWATER_URL" not in os.environ:
        sys.exit("SLACKWATER_URL is not set; run `. var/demo.env` first")
    given = Path(sys.argv[1])
    root = Path(os.environ.get("PHOTOS_ROOT") or Path(os.environ.get("SLACKWATER_VAR") or "var") / "photos")
    photo = f"incoming/{given.name}"
    (root / "incoming").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(given, root / photo)

    graph = workflow(photo)
    answer = call("POST", "/workflows", graph)
    ids = dict(zip([task["name"] for task in graph["tasks"]], answer["task_ids"], strict=True))
    last = call("GET", f"/tasks/{ids['publish']}?wait={WAIT_S}")

    print(f"workflow {answer['id']}")
    for name, task_id in ids.items():
        task = call("GET", f"/tasks/{task_id}")
        began, ended = task["started_at"] or "", task["finished_at"] or ""
        error = (task["error"] or "").strip().rpartition("\n")[2]
        print(f"  {name:<12} {task['state']:<10} {began[11:23]:<12} - {ended[11:23]}  {error}".rstrip())
    result = last["result"]
    if result is None:
        print(f"not published: {last['state']} {last['reason'] or ''}".rstrip())
        return 1
    if not result["published"]:
        print(f"not published: it shows the same picture as {result['duplicate_of']}")
        return 0
    print(f"published: open {result['page']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
