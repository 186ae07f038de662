"""What stands in docker/ agrees with the code: parts, settings, metrics."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from celery.bin.celery import celery as celery_command
from django.core.management import get_commands
from prometheus_client import generate_latest

from scheduler_ext.conf import SchedulerConf
from scheduler_ext.core.seals import LENGTH
from scheduler_ext.runner.options import parse
from tests.lab.reference import environment

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
ENTRYPOINT = (DOCKER / "entrypoint").read_text()
OF_THE_FOREIGN_IMAGES = {
    "POSTGRES_USER",
    "POSTGRES_DB",
    "POSTGRES_PASSWORD",
    "PGDATA",
    "REDISCLI_AUTH",
    "ADMIN_FROM",
    "SITE",
}


def parts() -> set[str]:
    return set(re.findall(r"^    (\w+)\)", ENTRYPOINT, re.MULTILINE))


def test_it_is_no_package() -> None:
    assert not list(DOCKER.rglob("__init__.py"))


def test_every_foreign_image_is_named_by_its_digest() -> None:
    images = {name: str(service["image"]) for name, service in SERVICES.items() if name not in OURS}
    images["base"] = re.findall(r"^ARG BASE=(.*)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)[0]
    assert {"postgres", "redis", "proxy", "base"} <= set(images)
    assert [name for name, image in images.items() if not re.search(r":[\w.-]+@sha256:[0-9a-f]{64}$", image)] == []


def test_the_design_is_all_there() -> None:
    names = [re.sub(r"-\d$", "", name) for name in SERVICES]
    for name, least in (("submitter", 2), ("dispatcher", 2), ("beat", 2), ("upkeep", 2)):
        assert names.count(name) >= least
    assert {"postgres", "redis", "proxy", "migrate", "flower", "prometheus", "grafana"} <= set(names)
    assert len([name for name in names if name.startswith("worker-")]) >= 2, "workers by tier"


@pytest.mark.parametrize("name", OURS)
def test_a_service_runs_a_part_the_entrypoint_knows(name: str) -> None:
    assert OURS[name]["command"][0] in parts()
    check = OURS[name].get("healthcheck")
    if check:
        part = check["test"][-1]
        assert part == OURS[name]["command"][0]
        assert re.search(rf"^    {part}\)", (DOCKER / "healthy").read_text(), re.MULTILINE)


def test_every_part_is_a_command_that_exists() -> None:
    commands = re.findall(r"manage\.py ([a-z_]+)", ENTRYPOINT)
    assert {"migrate", "run_dispatcher", "run_upkeep"} <= set(commands)
    assert set(commands) <= set(get_commands())
    for name in re.findall(r"-A slackwater(?:\.flower)? (\w+)", ENTRYPOINT):
        assert name in celery_command.commands


def test_every_variable_is_documented() -> None:
    known = {*environment.READ, *environment.STANDARD, "DJANGO_SETTINGS_MODULE"}
    for name, service in SERVICES.items():
        for variable in service.get("environment", {}):
            foreign = variable in OF_THE_FOREIGN_IMAGES or variable.startswith(("GF_", "FLOWER_"))
            assert foreign or variable in known, f"{name}: {variable}"


def test_every_secret_is_asked_for_and_stands_in_the_example() -> None:
    text = (DOCKER / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+):\?", text))
    example = dict(
        line.split("=", 1)
        for line in (DOCKER / ".env.example").read_text().splitlines()
        if "=" in line[:30] and line[0] != "#"
    )
    assert asked
    assert asked <= set(example)
    assert not any(example[name] for name in asked), "an example is no secret"


@pytest.mark.django_db
def test_the_dashboard_and_the_rules_ask_for_metrics_that_there_are() -> None:
    from slackwater_monitoring.metrics import registry
    from slackwater_monitoring.rollups.exposition import REFUSED

    REFUSED.labels("429")  # a metric tells its labels with the first that it has
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)", generate_latest(registry).decode(), re.MULTILINE))
    there = {f"{name}_bucket" if kind == "histogram" else name for name, kind in kinds.items()}
    labels = {
        family.name: {
            "le",
            "instance",
            *getattr(family, "_labelnames", ()),
            *(n for s in family.samples for n in s.labels),
        }
        for family in registry.collect()
    }
    board = json.loads((DOCKER / "grafana" / "dashboards" / "slackwater.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {_datasource()["uid"]}
    (group,) = yaml.safe_load((DOCKER / "prometheus-rules.yaml").read_text())["groups"]
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expression in [*shown, *(rule["expr"] for rule in group["rules"])]:
        assert set(re.findall(r"slackwater_\w+", expression)) <= there, expression
        assert set(re.findall(r"rate\((slackwater_\w+)", expression)) <= {
            name for name in there if name.endswith(("_total", "_bucket"))
        }, expression
        of = [labels[re.sub(r"_(total|bucket)$", "", name)] for name in re.findall(r"slackwater_\w+", expression)]
        asked = ",".join(re.findall(r"by \(([\w, ]+)\)", expression)).replace(" ", "").split(",")
        asked += re.findall(r"[{,](\w+)=", expression)
        assert set(asked) - {"", "job"} <= set.union(*of, set()), expression
    assert all(word in " ".join(shown) for word in ("rate(", "histogram_quantile("))
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    mounted = {each.split(":")[1] for each in SERVICES["prometheus"]["volumes"]}
    assert set(yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["rule_files"]) <= mounted


def _datasource() -> dict[str, Any]:
    found = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    source: dict[str, Any] = found["datasources"][0]
    return source


def test_proxy_and_prometheus_know_every_submitter() -> None:
    submitters = [f"{name}:8000" for name in SERVICES if name.startswith("submitter")]
    proxy = (DOCKER / "Caddyfile").read_text()
    scraped = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == submitters
    assert all(submitter in proxy for submitter in submitters)
    hosts = SERVICES["submitter-1"]["environment"]["SLACKWATER_ALLOWED_HOSTS"]
    assert all(submitter.removesuffix(":8000") in hosts for submitter in submitters), "or Django refuses them"


def test_files_that_are_mounted_or_copied_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("${DOCKER_SOCKET"):
                continue
            if source.startswith("."):
                assert (DOCKER / source).exists(), source
            else:
                assert source in COMPOSE["volumes"]
    for line in re.findall(r"^COPY (?!--)(.+)$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE):
        assert all((ROOT / source).exists() for source in line.split()[:-1]), line


def test_no_service_of_ours_is_privileged() -> None:
    assert "USER 10001" in (DOCKER / "Dockerfile").read_text()
    for name, service in OURS.items():
        assert not service.get("privileged"), name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["read_only"], name
        has_engine = any("docker.sock" in volume for volume in service.get("volumes", ()))
        assert has_engine == (name == "runner"), name


def test_what_a_service_may_take_is_bounded() -> None:
    for name, service in SERVICES.items():
        assert service.get("mem_limit"), name
        for mounted in service.get("tmpfs", ()):
            assert "size=" in mounted, name


def test_no_password_stands_on_a_command_line() -> None:
    for name, service in SERVICES.items():
        # Two dollars: the shell's variable, which the container's environment has.
        line = " ".join([*service.get("command", ()), *service.get("entrypoint", ())]).replace("$$", "")
        assert "PASSWORD" not in line, name
        assert "TOKEN}" not in line, name


def test_the_proxy_is_trusted_and_offers_the_admin_to_few() -> None:
    assert SERVICES["submitter-1"]["environment"]["SLACKWATER_TRUSTED_PROXIES"] == "1"
    proxy = (DOCKER / "Caddyfile").read_text()
    assert "not remote_ip {$ADMIN_FROM:private_ranges}" in proxy
    assert proxy.index("respond @admin 404") < proxy.index("reverse_proxy")


def test_who_has_the_engine_has_nothing_else() -> None:
    runner = SERVICES["runner"]
    assert runner["network_mode"] == "none"
    assert "environment" not in runner, "none of the platform's secrets"
    assert runner["read_only"]
    assert runner["profiles"] == ["runner"], "only where it is asked for"
    options = [word for word in runner["command"] if word.startswith("--")]
    parsed = parse([*runner["command"][1:], *([] if "--image" in options else ["--image", "x"])])
    shared = [volume.partition(":") for volume in runner["volumes"] if volume.startswith("runner:")]
    assert parsed.listen.removeprefix("unix:").startswith(shared[0][2] + "/")
    example = (DOCKER / ".env.example").read_text()
    scheduler = json.loads(re.findall(r"^# SLACKWATER_SCHEDULER=(.+)$", example, re.MULTILINE)[0])
    conf = SchedulerConf.from_mapping(scheduler)
    assert (conf.runner, conf.runner_token_file) == (parsed.listen, parsed.token_file)
    for name, service in SERVICES.items():
        if name.startswith("worker-"):
            assert "runner:/run/slackwater-runner" in service["volumes"]


@pytest.mark.parametrize("name", ["entrypoint", "healthy"])
def test_scripts_are_shell_and_refuse_what_they_do_not_know(name: str) -> None:
    script = DOCKER / name
    assert script.stat().st_mode & stat.S_IXUSR
    done = subprocess.run(["sh", str(script), "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "nonsense" in done.stderr


@pytest.mark.parametrize(
    ("service", "command"),
    [
        ("submitter-1", ["manage.py", "check"]),
        ("flower", ["-m", "celery", "-A", "slackwater.flower", "report"]),
    ],
)
def test_a_service_starts_with_what_the_file_says_of_it(service: str, command: list[str]) -> None:
    """Each variable that nobody must set stands at its default; each that must is some word."""

    def filled(value: str) -> str:
        return re.sub(
            r"\$\{\w+(:-([^}]*)|:\?[^}]*)\}", lambda m: m[2] or "" if m[1].startswith(":-") else "word", value
        )

    given = {name: filled(str(value)) for name, value in SERVICES[service]["environment"].items()}
    env = {
        "PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "slackwater.settings.production",
        "PYTHONPATH": "platform:apps", **given,
    }  # fmt: skip
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_the_check_of_a_worker_asks_with_the_key() -> None:
    """Celery's commands that only ask set no Django up: nothing that waits for that may be needed."""
    code = "import slackwater.celery as c; c.app.finalize(); from django.apps import apps; assert not apps.ready; "
    code += "from scheduler_ext.core.seals import seals; print(seals.mark('control', b'ping'))"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": "platform:apps", "SLACKWATER_SECRET_KEY": "a key"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert len(done.stdout.strip()) == LENGTH
