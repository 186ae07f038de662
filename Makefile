# Every target makes the environment it needs in .venv/ first; the second time that takes no time.
SHELL := /bin/sh
PYTHON := .venv/bin/python
# Two for each core: half of the suite waits for processes. One that has nothing left takes tests from another.
CORES := $(shell nproc 2>/dev/null || echo 2)
PYTEST_WORKERS ?= $(shell echo $$(($(CORES) < 8 ? 2 * $(CORES) : 16)))
PYTEST := .venv/bin/python -m pytest --dist worksteal
PYTEST_ARGS ?=
TORTURE_ARGS ?= --tasks 3000 --faults 100 --seed 1
BENCH_ARGS ?= --peers all --runs 3 --workload noop:20000 --workload sleep10ms:1000 --workload mixed:20000 \
	--page docs/benchmarks.md
.DEFAULT_GOAL := help
# Where this is set, each of the many processes that follow would compile all that it imports: two of three seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env env-dev env-browser lock up check test test-slow test-external test-browser lint format types audit bench bench-fairness torture test-matrix \
	sandbox-score attack sbom docs docs-shots site

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: ## make or refresh .venv/ with what the platform needs
	@sh bin/bootstrap requirements.txt

env-dev: ## the same with the tools for tests, lint and types
	@sh bin/bootstrap requirements-dev.txt

env-browser:
	@sh bin/bootstrap requirements-browser.txt

LOCK_SITE := .venv/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-annotate --custom-compile-command "make lock"
LOCK := $(LOCK_SITE) --extra embedded --extra runner --extra examples

lock: env-dev ## write requirements*.txt anew from pyproject.toml; LOCK_ARGS=--upgrade takes the newest versions
	@$(LOCK) $(LOCK_ARGS) -o requirements.txt
	@$(LOCK) $(LOCK_ARGS) -c requirements.txt --extra simulation --group dev -o requirements-dev.txt
	@$(LOCK) $(LOCK_ARGS) -c requirements-dev.txt --extra simulation --group dev --group browser -o requirements-browser.txt
	@$(LOCK_SITE) $(LOCK_ARGS) -c requirements-browser.txt --group site -o requirements-site.txt

up: env ## run the whole platform on this machine; Ctrl-C stops it, data stays in var/
	@exec $(PYTHON) manage.py up --die-with-parent $(UP_ARGS)

test: env-dev ## unit, property, integration and end-to-end tests on embedded servers
	@$(PYTEST) -n $(PYTEST_WORKERS) -m "not slow and not browser and not external" $(PYTEST_ARGS)

check: env-dev ## what to run while working: format, lint, types, and the tests that start nothing
	@.venv/bin/ruff format --check -q .
	@.venv/bin/ruff check -q .
	@.venv/bin/lint-imports --no-logo >/dev/null || .venv/bin/lint-imports
	@$(PYTHON) -m mypy
	@$(PYTEST) -q -n $(CORES) -m "not slow" $(PYTEST_ARGS) tests/architecture tests/property tests/unit

test-slow: env-dev ## the tests that take minutes (torture, long runs), and each property with ten times the examples
	@$(PYTEST) -n $(PYTEST_WORKERS) -m "slow and not browser and not external" $(PYTEST_ARGS)
	@SLACKWATER_TEST_EXAMPLES=thorough $(PYTEST) -n $(CORES) -m hypothesis -o timeout=1800 $(PYTEST_ARGS)

test-external: env-dev ## the suite on your own servers: SLACKWATER_DATABASE_URL and SLACKWATER_REDIS_URL
	@test -n "$$SLACKWATER_DATABASE_URL" || { echo "make test-external: set SLACKWATER_DATABASE_URL" >&2; exit 2; }
	@test -n "$$SLACKWATER_REDIS_URL" || { echo "make test-external: set SLACKWATER_REDIS_URL" >&2; exit 2; }
	@$(PYTEST) -n $(PYTEST_WORKERS) -m "not slow and not browser" $(PYTEST_ARGS)

test-browser: env-browser ## the pages in a real browser; needs Chromium on this machine
	@$(PYTHON) -m pytest -m browser $(PYTEST_ARGS)

test-matrix: env-dev ## move the examples with other versions of Python, Django, Celery, PostgreSQL, Redis; MATRIX_ARGS=--long
	@$(PYTHON) -m tests.lab matrix $(MATRIX_ARGS)

lint: env-dev ## ruff's rules and format, and the import contracts
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/lint-imports

format: env-dev ## let ruff format and mend what it can
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

types: env-dev ## mypy, strict
	@$(PYTHON) -m mypy

audit: env-dev ## ask the public advisory database about every installed package, where it can be reached
	@sh bin/audit

sbom: env-dev ## write the bill of materials of what is installed, CycloneDX with hashes: build/sbom.json
	@mkdir -p build
	@$(PYTHON) -W ignore -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml \
		--output-reproducible -o build/sbom.json && echo build/sbom.json

bench: env-dev ## compare with Celery and its peers, write docs/benchmarks.md
	@$(PYTHON) -m tests.lab bench $(BENCH_ARGS)

bench-fairness: env-dev ## each promise about fairness, simulated and then live (some minutes), written into docs/fairness.md
	@$(PYTHON) -m tests.lab fairness $(FAIRNESS_ARGS)
	@for one in starts quota fairness urgent; do $(PYTHON) -m tests.lab bench --scenario $$one --page docs/fairness.md || exit 1; done

torture: env-dev ## a mixed workload on real processes that are killed, stopped and cut off at random
	@$(PYTHON) -m tests.lab torture $(TORTURE_ARGS)

sandbox-score: env-dev ## run hostile scripts at every level that this machine offers and say what held
	@$(PYTHON) -m tests.lab sandbox_score $(SCORE_ARGS)

attack: env-dev ## attack a platform of its own at every door and say what held; ATTACK_ARGS="--door redis --short"
	@$(PYTHON) -m tests.lab attack $(ATTACK_ARGS)

docs: env-dev ## write the generated pages of docs/
	@$(PYTHON) -m tests.lab docs $(DOCS_ARGS)

site: env-dev ## build the documentation site in build/site/, with the API reference and every internal link checked
	@sh bin/bootstrap requirements-site.txt build/site-env
	@$(PYTHON) -m tests.lab site --python build/site-env/bin/python

docs-shots: env-browser ## take the pictures in docs/images/ anew, of a platform with real work; needs Chromium
	@$(PYTHON) -m tests.lab shots $(SHOTS_ARGS)
