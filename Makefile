# Needs Python 3.11, and Java 17 if it is there. All else comes from requirements.txt into .venv, once.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
# How long `make explore` looks, and `make test-rest` goes on.
MINUTES ?= 10
# How many days ahead `make test-ahead` is, and what it runs.
AHEAD ?= 400
KNOW_TIME := tests/airflow/test_dag_files.py tests/unit/test_hours.py tests/unit/test_plots.py $(addprefix \
	tests/integration/test_,expiry.py incidents.py retention.py watermarks.py)
# Where `make docs` writes.
SITE ?= .coset/site

# Commands start hundreds of interpreters: what these import is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kafka kafka serve test test-all test-rest test-ahead test-failed durations explore seeded check format engines bench bench-latency bench-plan compose-test kubernetes-test airflow docs requirements audit clean

help: ## Show these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Set up .venv; the other commands do it themselves

demo: $(READY) ## Run the main job on real flights, from plan to published tables
	@$(BIN)/coset demo

demo-kafka: $(READY) ## Run the same job on flights in a Kafka broker instead of landed files
	@$(BIN)/python -m demo.kafka_demo

kafka: $(READY) ## Keep a Kafka broker running, to look around; it needs Maven
	@$(BIN)/python -m demo.kafka_server

serve: $(READY) ## Keep the demo's S3 server and a Spark server running, to look around
	@$(BIN)/coset serve

airflow: $(READY) ## Keep both servers, Airflow's scheduler and its web page running
	@$(BIN)/coset serve --airflow

test: $(READY) ## Run tests, several files at once: the quick ones and those that find seeded faults
	@$(BIN)/python -m pytest --processes 5 -m "not long"

test-all: $(READY) ## Run every test, with a fifth of its examples
	@$(BIN)/python -m pytest --processes 5

test-rest: $(READY) ## Run for MINUTES=10 what make test leaves out, with all examples: what the last commits touch, and the others in turn
	@$(BIN)/python -m pytest --processes 5 --hypothesis-profile thorough --rest $(MINUTES)

test-ahead: $(READY) ## Run tests that know the time as in AHEAD=400 days
	@$(BIN)/python -m pytest --processes 5 --ahead $(AHEAD) -m "not long" $(KNOW_TIME)

test-failed: $(READY) ## Run again what failed last, one test after the other; it fails if nothing is known to have failed
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --hypothesis-profile thorough

durations: $(READY) ## Run every test, and write down how long each file takes: the longest begin first
	@$(BIN)/python -m pytest --processes 5 --record-durations

explore: $(READY) ## Look for new counterexamples with fresh seeds, for MINUTES=10
	@$(BIN)/python -m tests.explore $(MINUTES)

seeded: $(READY) ## Look which test finds each of the faults in tests/seeded first, or FAULTS="one another"
	@$(BIN)/python -m tests.seeded $(FAULTS)

compose-test: ## Bring docker-compose.yml up, publish two batches with it, and take it down again
	@$(PYTHON) -m tests.compose.run

kubernetes-test: $(READY) ## Publish two batches on the Kubernetes that kubectl knows, with IMAGE
	@$(BIN)/python -m tests.on_kubernetes

check: $(READY) ## Check format, style, types and import rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(READY) ## Format the code and repair what can be repaired
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) ## Compare with PySpark, Structured Streaming, Comet, Iceberg, Polars and DuckDB; it needs Maven
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.upserts

bench-latency: $(READY) ## Show where each second of a small batch goes, from the command to published
	@$(BIN)/python -m bench.latency

bench-plan: $(READY) ## Plan up to a million stream partitions: time, memory, size of the document
	@$(BIN)/python -m bench.planning

docs: $(READY) ## Build the site of the docs in .coset/site, and end if a link leads nowhere
	@$(BIN)/uv run --quiet --no-project --isolated --python 3.11 --with-requirements docs/requirements.txt \
		sphinx-build --quiet --fail-on-warning --keep-going --nitpicky -c docs . $(SITE)
	@echo "The site is $(SITE)/index.html"

engines: $(READY) ## Write what DuckDB NOW=2.0.1 answers otherwise than WAS=1.5.5, which Coset ships
	@$(BIN)/python -m tests.engines $(or $(WAS),$(error say which versions: make engines WAS=1.5.5 NOW=2.0.1)) \
		$(or $(NOW),$(error say which versions: make engines WAS=1.5.5 NOW=2.0.1))

requirements: $(READY) ## Pin requirements.in anew, and the constraints of each Python
	@$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make requirements" requirements.in -o requirements.txt
	@sed -nE 's/^([a-z0-9-]+)==(.*)$$/s|"\1==[^"]*"|"\1==\2"|/p' requirements.txt | sed -i -f - pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-annotate \
		--custom-compile-command "make requirements" docs/requirements.in -o docs/requirements.txt
	@for version in 3.11 3.12 3.13; do \
		$(BIN)/uv pip compile --quiet --python-version $$version --no-emit-index-url --no-emit-find-links --no-annotate \
			--custom-compile-command "make requirements" --all-extras --constraint requirements.txt pyproject.toml \
			-o constraints/constraints-$$version.txt || exit 1; done

audit: $(READY) ## Ask PyPI for known vulnerabilities of what is pinned; it fails where nobody can tell
	@$(BIN)/uv tool run --quiet pip-audit==2.10.1 --strict --no-deps --disable-pip -r requirements.txt -r docs/requirements.txt

clean: ## Remove .venv and everything that the demo kept
	rm -rf .venv .coset

$(READY): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: install Python 3.11, or name it with PYTHON="; exit 1; }
	@echo "Setting up .venv, once"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.txt)"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r requirements.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@# The clone is on the path: with this it would be installed twice.
	@rm -rf coset.egg-info
	@# Spark starts faster with it, but without it too.
	@$(BIN)/python -m coset.batches.runners.rehearsal >/dev/null 2>&1 || true
	@touch $@
