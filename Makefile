# `make` alone lists what there is. The environment is made once, and again when constraints.txt or a pyproject.toml has changed.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
INSTALLED := .venv/.installed
CCPR_HOME ?= $(if $(wildcard .ccpr),.ccpr,demo-run/.ccpr)
PORT ?= 3000
# How many processes share the tests, each with its own servers: one more than there are cores, since tests also wait,
# and four at most.
CORES := $(shell nproc 2>/dev/null || echo 2)
WORKERS ?= $(shell echo $$(($(CORES) < 3 ? $(CORES) + 1 : 4)))
PYTEST := $(BIN)/python -m pytest -p xdist.plugin --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Compiled modules are kept, also where the environment says otherwise: a test starts up to a dozen processes.
export PYTHONDONTWRITEBYTECODE :=
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with the package in it (.venv/bin/ccpr); the other targets do it themselves

$(INSTALLED): constraints.txt pyproject.toml packages/emulator/pyproject.toml scripts/make-venv
	scripts/make-venv
	@touch $@

demo: $(INSTALLED) ## replicate a shop while people order and cancel, compare every row, read it at two times
	$(BIN)/python -m demo.shop

demo-recorded: $(INSTALLED) ## replicate a recorded database through five iterations, compare, read with Spark, show in Dagster
	$(BIN)/python -m demo.run

demo-lake: $(INSTALLED) ## the shop as Delta tables: published, read by delta-rs, DuckDB and Spark at two points
	$(BIN)/python -m demo.lake

test: $(INSTALLED) ## all checks, and the tests of all lanes but the long one; the tests run even if a check fails
	@$(MAKE) --no-print-directory lint; checks=$$?; $(MAKE) --no-print-directory tests && exit $$checks

tests: $(INSTALLED) ## the tests alone; PYTEST_OPTIONS="-k name" for some of them
	@scripts/test-components
	$(PYTEST) --durations=25 --durations-min=2 -m 'not long' $(PYTEST_OPTIONS)

unit: $(INSTALLED) ## the fast lane: tests that start no process and no server, in a minute or two
	$(PYTEST) --numprocesses $(CORES) -m unit $(PYTEST_OPTIONS)

integration: $(INSTALLED) ## tests with processes and servers, but for the slow ones
	@scripts/test-components
	$(PYTEST) -m 'integration and not slow and not long' $(PYTEST_OPTIONS)

slow: $(INSTALLED) ## the slow lane: Spark, kills at every step, random histories
	@scripts/test-components
	$(PYTEST) -m 'slow and not long' $(PYTEST_OPTIONS)

long: $(INSTALLED) ## the long lane: what takes minutes each and is no part of `make test`
	@scripts/test-components browser
	$(PYTEST) --durations=25 --durations-min=2 -m long $(PYTEST_OPTIONS)

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
	@$(BIN)/python -m ccpr.dagster.partitions
	@echo "http://127.0.0.1:$(PORT)/asset-groups  (Ctrl-C ends it)"
	@cd $(DAGSTER_HOME) && PYTHONWARNINGS=ignore exec $(abspath $(BIN))/python $(CURDIR)/scripts/with-children \
	  $(abspath $(BIN))/dagster dev --workspace $(CURDIR)/workspace.yaml --host 127.0.0.1 --port $(PORT) --log-level warning

screenshots: $(INSTALLED) ## write the pictures of Dagster's UI in docs/images, by the test in a browser
	CCPR_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/ccpr_assets/test_browser.py

bench: $(INSTALLED) ## measure decoding, encoding, serving, copying, and an iteration over many tables (needs the full recordings)
	@for file in benchmarks/*.py; do echo "== $$file" && $(BIN)/python $$file || exit 1; done

service-hour: $(INSTALLED) ## 200 subscriptions on one `ccpr serve` for an hour in fast motion: due times missed, memory
	$(BIN)/python benchmarks/service.py --minutes $(or $(MINUTES),60)

scale: $(INSTALLED) ## cost against size, of tables, objects, points, subscriptions, rows: writes into docs/sizing.md; some 15 minutes
	$(BIN)/python benchmarks/scale.py --write docs

soak: $(INSTALLED) ## 100 changes a second for an hour, replicated each second: equal rows, memory, disk; MINUTES=60 RATE=100
	$(BIN)/python benchmarks/soak.py --minutes $(or $(MINUTES),60) --rate $(or $(RATE),100) --sample 60

dagster-day: $(INSTALLED) ## a day of 20 subscriptions on one `ccpr serve` in fast motion, Dagster's storage in MariaDB: its size; HOURS=0.2 for minutes
	$(BIN)/python benchmarks/dagster_day.py --hours $(or $(HOURS),24)

fuzz: $(INSTALLED) ## hostile input against every reader of foreign bytes; N=1000000 SEED=… for more
	$(BIN)/python -m tests.hostile.fuzz --cases $(or $(N),100000) $(if $(SEED),--seed $(SEED))

histories: $(INSTALLED) ## random histories of an upstream, replicated and compared; N=300 SEED=1 for more, or others; CREATE_AT=commit or prepare (as MatrixOne 4.2) for one kind
	HISTORIES=$(or $(N),300) SEED=$(or $(SEED),1) $(if $(CREATE_AT),CREATE_AT=$(CREATE_AT)) $(BIN)/python -m pytest -q tests/histories

logical-histories: $(INSTALLED) ## random statements of an account's administrator, replicated in both modes with kills; N=60 SEED=1, CCPR_ACCOUNT=mysql://account#admin:… and CCPR_SYS=mysql://sys#… of a real MatrixOne
	LOGICAL_HISTORIES=$(or $(N),60) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s --timeout 0 tests/histories/test_account_histories.py

several-histories: $(INSTALLED) ## random histories of several databases of an account, with events between the statements; N=300 SEED=1
	SEVERAL_HISTORIES=$(or $(N),300) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q tests/histories/test_several.py

several-kills: $(INSTALLED) ## kill -9 of an iteration over several databases before each statement, commit and file
	KILLS=all $(BIN)/python -m pytest -q --timeout 3600 tests/histories/test_several_kills.py

relay-histories: $(INSTALLED) ## random histories through a relay: the mirror of a mirror is that mirror, a MatrixOne has its rows; N=300 SEED=1
	RELAY_HISTORIES=$(or $(N),300) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q tests/relay/test_histories.py tests/relay/test_native_histories.py

disasters: $(INSTALLED) ## random sequences of restores, kills and iterations, each read compared; N=2000 for more
	DISASTERS=$(or $(N),2000) $(BIN)/python -m pytest -q --timeout 0 tests/histories/test_disasters.py

restarts: $(INSTALLED) ## an upstream restarted, killed, slow and forgetful, under writes, a target and a follower; ROUNDS=200 SEED=1
	ROUNDS=$(or $(ROUNDS),200) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s tests/restarts

histories-database: $(INSTALLED) ## random histories synced to a MariaDB and compared; N=100 SEED=1 for more, or others
	DATABASE_HISTORIES=$(or $(N),100) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q tests/histories/test_histories_database.py

sql-histories: $(INSTALLED) ## random SELECTs of MySQL clients, answers compared with a MariaDB; N=5000 SEED=1 for more, or others, MATRIXONE=host:port beside it
	MATRIXONE=$(MATRIXONE) SQL_STATEMENTS=$(or $(N),5000) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s tests/mysql/test_oracle.py

lake-histories: $(INSTALLED) ## random histories published to a lake, read by other programs at every point; N=300 SEED=1
	LAKE_HISTORIES=$(or $(N),300) SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q tests/histories/test_lake_histories.py

lake-kills: $(INSTALLED) ## kill of the publisher of a lake before and behind every file
	KILLS=all $(BIN)/python -m pytest -q --timeout 3600 tests/lake/test_kills.py

test-cluster: $(INSTALLED) ## a standalone cluster of Spark, a master and two workers: copy, read, deltas, load, a worker killed
	CLUSTER=1 $(BIN)/python -m pytest -q tests/pipeline/spark/test_cluster.py

target-kills: $(INSTALLED) ## kill -9 at every statement of syncing a table to MariaDB and to a simulated MatrixOne, and of the MariaDB server
	KILLS=all $(BIN)/python -m pytest -q --timeout 3600 tests/targets/test_kills.py

relay-kills: $(INSTALLED) ## kill -9 of the relay and of a following cluster at every statement; follow, unfollow and promote cut at each
	KILLS=all $(BIN)/python -m pytest -q --timeout 3600 tests/relay/test_kills.py tests/relay/test_follow.py tests/relay/test_promote.py tests/relay/test_promotion_stages.py

reference: $(INSTALLED) ## write the pages of docs/reference that come from the code
	$(BIN)/python -m scripts.reference

bounds: $(INSTALLED) ## the command line and the Dagster component with the lowest and the newest of each dependency; NAMES="typer dagster"
	$(BIN)/python scripts/bounds $(NAMES)

docs: $(INSTALLED) ## build the documentation into build/site; a broken link is an error
	$(MKDOCS) build --strict --site-dir build/site

docs-serve: $(INSTALLED) ## the documentation on 127.0.0.1:8000, built again when a page changes
	$(MKDOCS) serve --dev-addr 127.0.0.1:8000

rooms: $(INSTALLED) ## the packages, which imports which, and whether there is a circle
	$(BIN)/python scripts/rooms

kill-matrix: $(INSTALLED) ## each step of an iteration against each fault; writes the table in docs/reliability.md
	$(BIN)/python -m tests.kill_matrix

value-matrix: $(INSTALLED) ## every value of every type, and every odd table, by every way out; writes the table in docs/reliability.md
	$(BIN)/python -m tests.matrix

sample-objects: $(INSTALLED) ## an object of every kind and type with its rows as Parquet, for other readers; DIR=where
	$(BIN)/python -m ccpr_emulator.sample_objects $(or $(DIR),sample-objects)

clean: ## remove the environment, the demo's state and caches
	rm -rf .venv demo-run .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install demo demo-recorded demo-lake test tests unit integration slow lint format ui screenshots bench scale service-hour soak dagster-day fuzz histories logical-histories several-histories several-kills relay-histories disasters histories-database sql-histories lake-histories lake-kills test-cluster target-kills relay-kills restarts reference bounds docs docs-serve rooms kill-matrix value-matrix sample-objects clean
