# What a user or developer types. Everything runs from .venv, which the first target that needs it makes from
# requirements.lock. Works with the make of Linux and of macOS (3.81); nothing here needs root.

.DEFAULT_GOAL := help
.PHONY: help import test test-all test-hapi record-hapi check bench bench-large bench-peers bench-faults up lock clean
.DELETE_ON_ERROR:

HOME_DIR  ?= var
INBOX     ?= data/samples/inbox
REFERENCE ?= data/samples/reference
FEEDS     ?=
# Sizes of the benchmark of a million rows, such as --payments 100000 --tasks 100000 --responses 10000.
MILLION   ?=
# Sizes of the benchmark of ten million rows, such as --tasks 100000.
LARGE     ?=
# Options of the comparison with HAPI FHIR, such as --only reads --rounds 1.
PEERS     ?=
# The first Python of 3.11 or newer on the path.
PYTHON    ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

VENV := .venv
BIN  := $(VENV)/bin
# Tests start the commands some hundred times: what Python compiles is kept, even where the environment says it is not.
unexport PYTHONDONTWRITEBYTECODE
# Processes that run tests beside each other: for two cores, as tests wait for a quarter of their time.
WORKERS   ?= 3
# Tests of one file stay in one process, so that they share what they set up; the longest files begin first.
TESTS := $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  import takes INBOX=, REFERENCE=, FEEDS= and HOME_DIR= (now $(HOME_DIR)); PYTHON= names the Python of .venv"

import: $(VENV)/.installed ## load the reference data, import the inbox, publish the reports
	@[ -n "$(HOME_DIR)" ] || { echo "HOME_DIR is empty: name the folder that all state is kept in"; exit 1; }
	@$(BIN)/chartferry --home "$(HOME_DIR)" $(if $(FEEDS),--feeds "$(FEEDS)") import --reference "$(REFERENCE)" "$(INBOX)" || \
		{ code=$$?; [ $$code -eq 3 ] || exit $$code; echo "Some rows were set aside: see above. The commands are in $(BIN)."; }

test: $(VENV)/.installed ## run the tests, without the long ones
	$(TESTS) -m "not long"

test-all: $(VENV)/.installed ## run all tests
	$(TESTS)

test-hapi: $(VENV)/.installed ## import into a real HAPI FHIR server (needs Java, Maven, PostgreSQL)
	WITH_HAPI=1 $(BIN)/pytest -q tests/hapi

record-hapi: $(VENV)/.installed ## record anew how HAPI FHIR answers, into tests/hapi/exchanges.ndjson
	$(BIN)/python -m tests.hapi.record

check: $(VENV)/.installed ## formatting, lint, types, import rules, SQL
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sqlfluff lint --disable-progress-bar sql

bench: $(VENV)/.installed ## run the benchmarks, write their results to bench/*.json
	$(BIN)/python bench/run.py
	$(BIN)/python bench/service.py
	$(BIN)/python bench/fair.py
	$(BIN)/python bench/pages.py
	$(BIN)/python bench/million.py $(MILLION)
	$(BIN)/python bench/reports.py
	$(BIN)/python bench/views.py

bench-peers: $(VENV)/.installed ## beside HAPI FHIR (needs Java, Maven, PostgreSQL, wrk), write bench/peers.json
	$(BIN)/python -m bench.peers $(PEERS)

bench-large: $(VENV)/.installed ## one import of ten million rows (25 GB, half an hour), write bench/large.json
	$(BIN)/python bench/large.py $(LARGE)

bench-faults: $(VENV)/.installed ## 2,000 imports with something going wrong on the way, write bench/faults.json
	$(BIN)/python bench/faults.py

up: $(VENV)/.installed ## service, Dagster's web pages and daemon, until Ctrl-C
	@$(BIN)/chartferry --home "$(HOME_DIR)" $(if $(FEEDS),--feeds "$(FEEDS)") up

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-strip-extras --all-extras \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -o requirements.lock pyproject.toml

clean: ## remove .venv, caches and built files; never what an import made
	rm -rf $(VENV) build dist bench/peers/hapi/target .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find fhir_service pipelines tests bench data -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.locked: requirements.lock
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Making $(VENV) from requirements.lock (once; a minute or two) ..."
	@[ -x $(BIN)/pip ] || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
