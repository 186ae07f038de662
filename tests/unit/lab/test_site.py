"""The documentation's site: what is staged, and the API reference in it."""

from __future__ import annotations

from pathlib import Path

from tests.lab.site import operations
from tests.lab.site.staging import ROOT, stage


def test_pages_keep_their_places_with_what_they_link(tmp_path: Path) -> None:
    pages = stage(tmp_path)
    assert ROOT / "README.md" in pages
    assert ROOT / "docs" / "adr" / "0001-postgresql-is-the-only-ledger.md" in pages
    assert (tmp_path / "docs" / "images" / "flow.svg").exists()
    assert not list(tmp_path.rglob("*.pyc"))


def test_each_operation_has_a_section_and_links_the_shapes_it_names() -> None:
    shape = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "description": "a|b <c>"}}}
    text = operations.page({
        "paths": {"/tasks": {"post": {
            "tags": ["tasks"], "description": "Submit.",
            "parameters": [{"name": "dry_run", "in": "query", "schema": {"type": "boolean"}}],
            "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/TaskIn"}}}},
            "responses": {"201": {"description": "Accepted.", "content": {
                "application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Task"}}}}}},
        }}},
        "components": {"schemas": {"Task": shape, "TaskIn": {"oneOf": [{"type": "string"}, {"enum": ["x"]}]}}},
    })  # fmt: skip
    assert "### POST `/tasks`\n\nSubmit.\n" in text
    assert "| `dry_run` | query | boolean |" in text
    assert "Takes `application/json`: [TaskIn](#taskin)" in text
    assert "| 201 | Accepted. | array of [Task](#task) |" in text
    assert (
        "### Task\n\n| field | type | | what |\n| --- | --- | --- | --- |\n| `id` | string | always | a\\|b &lt;c> |"
        in text
    )
    assert "string or `x`" in text
