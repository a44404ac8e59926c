# make setup, make demo, make test: what a new contributor runs. Needs Python 3.11 and make; see CONTRIBUTING.md.

PYTHON ?= python3
VENV   ?= .venv
SCALE  ?= 1
END    ?=
JOBS   ?= 4
STORMS ?= $(JOBS)

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
STAGE  := .ci/stage
DATA    = $(or $(MIGRATOR_TEST_ARTEFACTS),.migrator-test)
PYTEST  = $(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup --durations-json $(DATA)/durations-$@.json
MAPPINGS = mappings/*.yaml mappings/designs/*.yaml docker/tables/mapping.yaml

# Tests that are about one part, on the engines where it can fail. The folder selects; markers say what a server adds.
PARTS  := tests/unit tests/golden tests/contract tests/language tests/designs tests/simulation tests/outside \
  tests/exports tests/integration tests/log tests/service tests/races

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --no-header --no-emit-index-url --no-emit-find-links --upgrade

# Compiled modules are kept: the suite starts many processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lint format test test-all engines journeys storms docs lock demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv, from the lock alone

# The stamp is written last: an installation that broke off is repeated.
$(STAMP): requirements.lock pyproject.toml migrator/mapping/items/_native.pyx
	@PYTHON=$(PYTHON) $(STAGE) setup .ci/setup $(VENV)
	@touch $@

lint: setup ## check style, types, layers, schemas, mappings, licences and the pages
	@$(STAGE) lint .ci/lint $(BIN) $(MAPPINGS)

format: setup ## format every file
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

test: setup ## all parts on SQLite, fakes and an embedded DynamoDB: four minutes on two cores
	@$(STAGE) $@ $(PYTEST) $(PARTS) -m "not (postgres or mysql or slow or nightly)"

test-all: export MIGRATOR_TEST_TABLE ?= docs/tested.md
test-all: test ## all that CI tests: half an hour
	@echo "storms run beside engines and journeys; what they print follows"
	@$(MAKE) --no-print-directory storms > $(DATA)/storms.log 2>&1 & storms=$$!; \
	$(MAKE) --no-print-directory engines journeys; code=$$?; \
	wait $$storms || code=$$?; cat $(DATA)/storms.log; exit $$code

# The same parts on PostgreSQL and MariaDB, and the slow tests of all.
engines: setup
	@$(STAGE) $@ $(PYTEST) $(PARTS) -m "(postgres or mysql or slow) and not nightly"

# The commands end to end.
journeys: setup
	@$(STAGE) $@ $(PYTEST) tests/journeys -m "not nightly"

# Load, kills and moves while services write: they wait more than they work.
storms: setup
	@$(STAGE) $@ $(PYTEST) -n $(STORMS) tests/storms -m "not nightly"

docs: setup ## build the site of docs/ in build/docs/html; a broken link is an error
	$(BIN)/python -m tools.pages.site

lock: setup ## write the locks with the newest versions that fit: to develop, to run, for the example shop
	$(COMPILE) --group dev --extra postgres --extra mysql --extra local -o requirements.lock \
	  pyproject.toml docker/shop/requirements.in
	$(COMPILE) --group build --extra postgres --extra mysql -c requirements.lock -o requirements-run.lock pyproject.toml
	$(COMPILE) --extra postgres --extra local -c requirements.lock -o docker/shop/requirements.lock \
	  pyproject.toml docker/shop/requirements.in

demo: setup ## move the example shop from SQLite to an embedded DynamoDB (SCALE=10: more rows; END=1: until SQL is gone)
	@$(STAGE) $@ $(BIN)/python docker/shop/demo.py --scale $(SCALE) $(if $(END),--end)

clean: ## remove what was made here, the environment included
	rm -rf $(VENV) $(VENV)-* .migrator jobs/.migrator build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
