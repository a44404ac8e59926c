# What a newcomer runs: make setup, make lint, make test, make demo. Needs Python 3.11 and make; see CONTRIBUTING.md.

PYTHON ?= python3
VENV   ?= .venv
SCALE  ?= 1
END    ?=
JOBS   ?= 4
STORMS ?= 4
PORT   ?= 8000

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
MAPPINGS = mappings/*.yaml mappings/designs/*.yaml docker/tables/mapping.yaml
PIP   := $(BIN)/python -m pip -qq --disable-pip-version-check

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --no-header --no-emit-index-url --no-emit-find-links

# Compiled modules are kept: the suite starts the command some hundred times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lint format test journeys engines soak nightly alone bench runbook demo demo-tables shop pins docs pages lock bases clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv, from the lock alone

# The stamp is written last: an installation that broke off is done again.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "setup: $(PYTHON) is older than Python 3.11; name another one: make setup PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "setup: this Python cannot make environments; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@echo "setup: installing what requirements.lock names into $(VENV); on a quiet machine that takes some two minutes"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

lint: setup ## style, form, types, the arrows of the house, the shipped mappings, licences, known vulnerabilities
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo >$(VENV)/lint-imports.txt 2>&1 || { cat $(VENV)/lint-imports.txt; exit 1; }
	$(BIN)/python -m pytest -q tests/test_house.py
	@$(BIN)/migrator mapping schema >$(VENV)/mapping.schema.json
	$(BIN)/check-jsonschema --quiet --schemafile $(VENV)/mapping.schema.json $(MAPPINGS)
	@$(BIN)/migrator mapping schema --of-jobs >$(VENV)/job.schema.json
	$(BIN)/check-jsonschema --quiet --schemafile $(VENV)/job.schema.json jobs/*.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker/compose.yaml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows docs/deploy/github-actions.yml
	$(BIN)/cfn-lint docs/deploy/ecs.yaml jobs/spark/*.yaml
	$(BIN)/hadolint docker/Dockerfile
	@$(BIN)/migrator mapping check $(MAPPINGS) >$(VENV)/mappings.txt 2>&1 || { cat $(VENV)/mappings.txt; exit 1; }
	$(BIN)/python -m pytest -q tests/unit/test_image.py -k "licences or gpl"
	$(BIN)/python -m docs.audit_packages
	$(BIN)/python -m docs.generate_site

format: setup ## put every file into form
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

test: setup ## all tests but the long ones: six minutes on two cores
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "not bench and not soak and not runbook and not other_engine and not long_journey"

journeys: setup ## Chinook, init, moves, status, decommission, forget, undo, a storm, stores that go back, servers of services: ten to fifteen minutes
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "long_journey and not other_engine and not soak and not nightly"

engines: setup ## the same on one engine more: Chinook and races on both servers, the rest on MariaDB; faults on two lanes more
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup -m "other_engine and not soak and not nightly"

soak: setup ## storms, kills and long properties: some 15 minutes
	MIGRATOR_TEST_EXAMPLES=500 $(BIN)/python -m pytest -q -n $(STORMS) --dist loadgroup \
	  -m "((soak and not alone) or property) and not nightly"

nightly: setup ## what CI leaves out: more on the other server, ten times as many schedules, longer properties, newer Pythons: two hours
	MIGRATOR_TEST_EXAMPLES=3000 $(BIN)/python -m pytest -q -n $(STORMS) --dist loadgroup -m "nightly or property"
	MIGRATOR_TEST_SCHEDULES=30000 $(BIN)/python -m pytest -q -m soak tests/simulation
	.ci/versions

alone: setup ## moves, reads and their noise under load, one after the other: some four minutes
	$(BIN)/python -m pytest -q -m alone

bench: setup ## figures of speed as the tables of docs/speed.md, printed at the end; they want a quiet machine: half an hour
	$(BIN)/python -m pytest -q -s -m bench tests/bench

runbook: setup ## every command of docs/runbook.md and docs/tutorial.md, as printed: three minutes
	$(BIN)/python -m pytest -q -m runbook tests/journey/test_runbook.py

demo: setup ## the shop, from SQLite to an embedded DynamoDB (SCALE=10: ten times as much; END=1: until it needs no SQL)
	$(BIN)/python docker/shop/demo.py --scale $(SCALE) $(if $(END),--end)

demo-tables: setup ## the same shop on boto3, from three old tables of an embedded DynamoDB to one
	$(BIN)/python docker/tables/demo.py

shop: setup ## the shop as a web service, until Ctrl-C (PORT=8001 for another port)
	PATH="$(CURDIR)/$(BIN):$$PATH" PORT=$(PORT) bash jobs/shop.sh

pins: setup ## write tests/outside/__snapshots__ anew, where a change of helps, JSON keys or DDL is meant
	$(BIN)/python -m pytest -q tests/outside --snapshot-update

docs: setup ## make the site of docs/ in build/docs/html; a broken link is an error
	$(BIN)/python -m docs.generate_site

pages: setup ## write the pages of docs/ and the schema that are made from the code
	$(BIN)/migrator mapping schema >mappings/mapping.schema.json
	$(BIN)/migrator mapping schema --of-jobs >jobs/job.schema.json
	$(BIN)/python -m docs.generate_patterns
	$(BIN)/python docs/generate_types.py
	$(BIN)/python docs/generate_licences.py

lock: setup ## write the locks anew, with the newest versions that fit: to develop, to run, for the example shop
	$(COMPILE) --upgrade --extra dev -o requirements.lock pyproject.toml
	$(COMPILE) --upgrade --extra postgres --extra mysql -c requirements.lock -o requirements-run.lock pyproject.toml
	$(COMPILE) --upgrade --extra postgres --extra local --extra shop -c requirements.lock \
	  -o docker/shop/requirements.lock pyproject.toml

bases: ## ask Docker for the digests of the image's bases, and write docker/.env: look at them, then commit it
	@set -e; for base in PYTHON=python:3.11-slim-bookworm POSTGRES=postgres:15; do \
	  digest=$$(docker buildx imagetools inspect "$${base#*=}" --format '{{.Manifest.Digest}}'); \
	  echo "$${base%%=*}_DIGEST=$$digest"; \
	done >docker/.env.new
	@mv docker/.env.new docker/.env && cat docker/.env

clean: ## remove what was made here, the environment included
	rm -rf $(VENV) .migrator jobs/.migrator build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
