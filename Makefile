# `make` alone lists what there is. The environment is made once, and again when constraints.txt or pyproject.toml has changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTEST_OPTIONS ?= --durations=15 --durations-min=1
CCPR_HOME ?= $(if $(wildcard .ccpr),.ccpr,demo-run/.ccpr)
PORT ?= 3000
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the package in it (.venv/bin/ccpr); the other targets do it themselves

$(INSTALLED): constraints.txt pyproject.toml scripts/make-venv
	scripts/make-venv
	@touch $@

demo: $(INSTALLED) ## replicate a recorded database through five iterations, compare, read with Spark, show in Dagster
	$(BIN)/python -m demo.run

test: $(INSTALLED) ## all checks and all tests; the tests run even if a check fails
	@$(MAKE) --no-print-directory lint; checks=$$?; $(MAKE) --no-print-directory unit && exit $$checks

unit: $(INSTALLED) ## the tests alone; PYTEST_OPTIONS="-k name" for some of them
	@scripts/test-components
	$(BIN)/python -m pytest $(PYTEST_OPTIONS)

lint: $(INSTALLED) ## style, formatting, types, and which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

format: $(INSTALLED) ## format the code and repair what the linter can
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

ui: export CCPR_HOME := $(abspath $(CCPR_HOME))
ui: export DAGSTER_HOME := $(abspath $(CCPR_HOME))/dagster
ui: $(INSTALLED) ## Dagster's UI on 127.0.0.1:3000 (PORT=) for the subscriptions in CCPR_HOME, else .ccpr, else the demo's
	@umask 077 && mkdir -p $(DAGSTER_HOME) && cp dagster.yaml $(DAGSTER_HOME)/
	@$(BIN)/python -m ccpr_assets.partitions
	@echo "http://127.0.0.1:$(PORT)/asset-groups  (Ctrl-C ends it)"
	@cd $(DAGSTER_HOME) && PYTHONWARNINGS=ignore exec $(abspath $(BIN))/dagster dev --workspace $(CURDIR)/workspace.yaml \
	  --host 127.0.0.1 --port $(PORT) --log-level warning

bench: $(INSTALLED) ## measure decoding, encoding, serving, copying, and an iteration over many tables (needs the full recordings)
	@for file in benchmarks/*.py; do echo "== $$file" && $(BIN)/python $$file || exit 1; done

fuzz: $(INSTALLED) ## hostile input against every reader of foreign bytes; N=1000000 SEED=… for more
	$(BIN)/python -m tests.hostile.fuzz --cases $(or $(N),100000) $(if $(SEED),--seed $(SEED))

histories: $(INSTALLED) ## random histories of an upstream, replicated and compared; N=300 SEED=1 for more, or others; CREATE_AT=commit or prepare (as MatrixOne 4.2) for one kind
	HISTORIES=$(or $(N),300) SEED=$(or $(SEED),1) $(if $(CREATE_AT),CREATE_AT=$(CREATE_AT)) $(BIN)/python -m pytest -q tests/histories

disasters: $(INSTALLED) ## random sequences of restores, kills and iterations, each read compared; N=2000 for more
	DISASTERS=$(or $(N),2000) $(BIN)/python -m pytest -q --timeout 0 tests/histories/test_disasters.py

histories-database: $(INSTALLED) ## random histories synced to a MariaDB and compared; N=100 SEED=1 for more, or others
	DATABASE_HISTORIES=$(or $(N),100) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q tests/histories/test_histories_database.py

target-kills: $(INSTALLED) ## kill -9 at every statement of syncing a table to MariaDB, of ours and of the server
	KILLS=all $(BIN)/python -m pytest -q --timeout 3600 tests/replication/targets/test_kills.py

reference: $(INSTALLED) ## write the pages of docs/reference that come from the code
	$(BIN)/python -m ccpr_cli.reference

docs: $(INSTALLED) ## build the documentation into build/site; a broken link is an error
	$(MKDOCS) build --strict --site-dir build/site

docs-serve: $(INSTALLED) ## the documentation on 127.0.0.1:8000, built again when a page changes
	$(MKDOCS) serve --dev-addr 127.0.0.1:8000

rooms: $(INSTALLED) ## the packages, which imports which, and whether there is a circle
	$(BIN)/python scripts/rooms

kill-matrix: $(INSTALLED) ## each step of an iteration against each fault; writes the table in docs/reliability.md
	$(BIN)/python -m tests.kill_matrix

sample-objects: $(INSTALLED) ## an object of every kind and type with its rows as Parquet, for other readers; DIR=where
	$(BIN)/python -m emulator.sample_objects $(or $(DIR),sample-objects)

clean: ## remove the environment, the demo's state and caches
	rm -rf .venv demo-run .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install demo test unit lint format ui bench fuzz disasters histories histories-database kill-matrix target-kills reference docs docs-serve rooms sample-objects clean
