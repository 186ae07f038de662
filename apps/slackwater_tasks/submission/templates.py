"""Workflow templates: stored by name and version, with typed parameters that a submission fills in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.db import transaction
from django.db.models import Max, QuerySet

from scheduler_ext.core.errors import DoesNotFit, InvalidInput, NotFound, NotGranted, TooLarge, misfit
from slackwater_tasks.field_kinds import Object, Text, Whole, json_type
from slackwater_tasks.models import WorkflowTemplate
from slackwater_tasks.spec import parse_tasks
from slackwater_tasks.submission.service import Submission, check_list, parse_header, submit_workflow
from slackwater_tenants.members import lock_tenant
from slackwater_tenants.models import Tenant

MARK: Final = "$param"
NAME: Final = Text(100, empty=False)
FIELDS: Final = ("name", "description", "parameters", "workflow")
USE: Final = ("version", "parameters", "name", "tags", "metadata")
"""What a submission by template says; the last three override the template's own."""
MAX_BYTES: Final = 1_048_576
MAX_VERSIONS: Final = 1_000
"""The most versions of all templates of a tenant together."""
MAX_PATTERNS: Final = 100
MAX_STATES: Final = 262_144
"""The most bytes that an expression takes when compiled, some hundred for each of its states."""
MAX_MATCHED: Final = 8 * 2**30
"""The most such bytes times letters that a check matches: within a second, as nobody else is answered meanwhile."""
NO_PATTERN: Final = (
    "must be a regular expression that is matched in linear time: without look-around and back-references, and with "
    "small counts ({1,100}; maxLength bounds a length for nothing)"
)


def store(tenant: Tenant, data: Any, *, actor: str = "") -> tuple[WorkflowTemplate, bool]:
    """Store a version of a template, unless the latest one has the same content. Returns it, and if it is new."""
    if not isinstance(data, Mapping):
        raise InvalidInput("must be an object")
    for each in data:
        if each not in FIELDS:
            raise InvalidInput(f"there is no such field; known are {', '.join(FIELDS)}", field=str(each)[:60])
    name = NAME.check(data.get("name"), "name")
    if "/" in name:
        raise InvalidInput("must not contain a slash: it stands in an address", field="name")
    values: dict[str, Any] = {
        "description": Text(500).check(data.get("description"), "description"),
        "parameters": _schema(Object().check(data.get("parameters", {}), "parameters")),
        "workflow": Object().check(data.get("workflow"), "workflow"),
    }
    if len(json.dumps(values)) > MAX_BYTES:
        raise TooLarge(f"a template has at most {MAX_BYTES} bytes", field="workflow")
    _check_workflow(values["workflow"], values["parameters"])
    with transaction.atomic():
        lock_tenant(tenant.pk)
        latest = versions(tenant.pk).filter(name=name).first()
        if latest is not None and all(getattr(latest, each) == value for each, value in values.items()):
            return latest, False
        if versions(tenant.pk).count() >= MAX_VERSIONS:
            raise NotGranted(f"a tenant keeps at most {MAX_VERSIONS} versions of templates", limit=MAX_VERSIONS)
        number = latest.version + 1 if latest is not None else 1
        made = WorkflowTemplate(tenant=tenant, name=name, version=number, created_by=actor[:120], **values)
        made.save(force_insert=True)
    made.refresh_from_db()
    return made, True


def versions(tenant_id: int) -> QuerySet[WorkflowTemplate]:
    """All versions of a tenant's templates, by name, latest first."""
    found: QuerySet[WorkflowTemplate] = WorkflowTemplate.objects.unscoped().for_tenant(tenant_id)  # the tenant is named
    return found


def latest(tenant_id: int) -> QuerySet[WorkflowTemplate]:
    """The latest version of each of a tenant's templates."""
    tops = versions(tenant_id).order_by().values("name").annotate(top=Max("id")).values("top")
    return versions(tenant_id).filter(pk__in=tops)


def find(tenant_id: int, name: str, version: int | None = None) -> WorkflowTemplate:
    """A template, by default its latest version; ``NotFound`` without one."""
    rows = versions(tenant_id).filter(name=name)
    found = (rows if version is None else rows.filter(version=version)).first()
    if found is None:
        raise NotFound(f"There is no template {name[:100]!r}{'' if version is None else f' of version {version}'}.")
    return found


def delete(tenant_id: int, name: str) -> None:
    """Delete a template with all its versions; what was submitted stays."""
    if not versions(tenant_id).filter(name=name).delete()[0]:
        raise NotFound(f"There is no template {name[:100]!r}.")


def fill(tenant_id: int, name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The workflow made of a template and its use; ``data`` has the fields of :data:`USE`.

    Raises ``InvalidInput``, which names the parameter (``parameters.day``), and ``NotFound``.
    """
    for each in data:
        if each not in USE:
            raise InvalidInput(f"there is no such field; known are {', '.join(USE)}", field=str(each)[:60])
    number = data.get("version")
    template = find(tenant_id, name, None if number is None else Whole(1, 2**31 - 1).check(number, "version"))
    values = _values(template.parameters, Object().check(data.get("parameters") or {}, "parameters"))
    over = {each: data[each] for each in ("name", "tags", "metadata") if data.get(each) is not None}
    found: dict[str, Any] = {"name": template.name, **_filled(template.workflow, values), **over}
    return found


def submit(tenant: Tenant, name: str, data: Any, *, actor: str = "") -> Submission:
    """Submit a template with parameters, as a workflow like any other."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"must be an object, not {json_type(data)}")
    return submit_workflow(tenant, fill(tenant.pk, name, data), actor=actor)


# -- parameters -------------------------------------------------------------------------------------------------------
def _schema(given: dict[str, Any]) -> dict[str, Any]:
    """The schema of the parameters: an object without further ones; ``InvalidInput`` if it is no such schema."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False, **given}
    if schema["type"] != "object" or not isinstance(schema["properties"], dict):
        raise DoesNotFit("must be the JSON Schema of an object: type and properties", field="parameters")
    if any(isinstance(node, Mapping) and ("$ref" in node or "$dynamicRef" in node) for node in _nodes(schema)):
        raise DoesNotFit("must refer to nothing: write each schema in its place", field="parameters")
    if _patterns(schema) > MAX_PATTERNS:
        raise DoesNotFit(f"has at most {MAX_PATTERNS} regular expressions", field="parameters")
    _compiled(schema)
    for name, each in schema["properties"].items():
        if isinstance(each, dict) and "default" in each:
            _check_value(each, each["default"], f"parameters.properties.{name}.default")
    return schema


def _patterns(schema: Any) -> int:
    """How many regular expressions a schema has."""
    nodes = [node for node in _nodes(schema) if isinstance(node, Mapping)]
    names = [node["patternProperties"] for node in nodes if isinstance(node.get("patternProperties"), Mapping)]
    return sum("pattern" in node for node in nodes) + sum(map(len, names))


def _compiled(schema: Any, most_states: int = MAX_STATES) -> Any:
    """The validator of a schema; ``DoesNotFit`` names the place in it that is none.

    Its regular expressions are matched in linear time. Those that no such engine knows, or that are larger than
    ``most_states``, are refused.
    """
    # On first use: it is large, and few processes meet a template.
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    try:
        linear = RegexOptions(size_limit=most_states)
        return Draft202012Validator(schema, pattern_options=linear, validate_formats=True, offline=True)
    except ValidationError as error:
        path = "".join(f".{step}" for step in error.instance_path)
        why = NO_PATTERN if (error.kind.name, error.kind.value) == ("format", "regex") else error.message
        raise DoesNotFit(f"is no JSON Schema: {why}"[:500], field=f"parameters{path}") from None


def _values(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        name: each["default"]
        for name, each in schema["properties"].items()
        if isinstance(each, dict) and "default" in each
    }
    values = {**defaults, **given}
    for name in given:
        if name not in schema["properties"] and schema.get("additionalProperties") is False:
            known = ", ".join(schema["properties"]) or "none"
            raise DoesNotFit(f"the template has no such parameter; known are {known}", field=f"parameters.{name[:60]}")
    for name in schema.get("required", ()):
        if name not in values:
            raise DoesNotFit("must be given: the template needs it", field=f"parameters.{name}")
    _check_value(schema, values, "parameters")
    return values


def _check_value(schema: Any, value: Any, path: str) -> None:
    # Matching takes the states of an expression times the letters: the longer the value, the fewer states.
    letters = _patterns(schema) * len(json.dumps(value))
    try:
        validator = _compiled(schema, min(MAX_STATES, MAX_MATCHED // max(letters, 1)))
    except DoesNotFit:
        try:
            _compiled(schema)
        except DoesNotFit as error:  # stored when more was allowed
            raise DoesNotFit(f"store the template anew: its {error.field} {error}"[:500], field=path) from None
        raise TooLarge("is too long for the regular expressions of the template", field=path) from None
    outermost = min(validator.iter_errors(value), key=lambda error: len(error.instance_path), default=None)
    if outermost is not None:
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in outermost.instance_path)
        raise DoesNotFit(f"does not fit: {outermost.message}"[:500], field=path + steps)


# -- what is submitted ------------------------------------------------------------------------------------------------
def _check_workflow(workflow: dict[str, Any], schema: Mapping[str, Any]) -> None:
    """Check the workflow: refuse what no parameters could complete, and with defaults for all, what they make."""
    for node in _nodes(workflow):
        if isinstance(node, Mapping) and MARK in node:
            name = node[MARK]
            if len(node) != 1 or not isinstance(name, str) or name not in schema["properties"]:
                known = ", ".join(schema["properties"]) or "none"
                raise DoesNotFit(f'must be {{"{MARK}": NAME}} with a parameter; known are {known}', field="workflow")
    if "idempotency_key" in workflow:
        raise DoesNotFit("belongs to a submission", field="workflow.idempotency_key")
    values = {name: each.get("default") for name, each in schema["properties"].items() if isinstance(each, dict)}
    has_all = all(isinstance(each, dict) and "default" in each for each in schema["properties"].values())
    found = _filled(workflow, values) if has_all else workflow
    try:
        check_list(found.get("tasks"), "tasks")
        if has_all:
            parse_header(found)
            parse_tasks(found["tasks"], "tasks")
    except InvalidInput as error:
        raise misfit(error, "workflow") from None


def _nodes(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Mapping):
            stack += node.values()
        elif isinstance(node, list):
            stack += node


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """``value`` with parameters filled in; a task's field whose parameter has no value is left out."""
    if isinstance(value, Mapping):
        if MARK in value:
            return values.get(value[MARK])
        filled = {name: _filled(each, values) for name, each in value.items()}
        return {name: each for name, each in filled.items() if not (_is_unset(value[name], values))}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    return value


def _is_unset(value: Any, values: Mapping[str, Any]) -> bool:
    return isinstance(value, Mapping) and MARK in value and value[MARK] not in values
