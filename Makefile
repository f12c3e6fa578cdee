# Thin: everything here is also plain uv, fab, snakemake and pytest (see README.md).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory

UV_VERSION := 0.13.8
PYTHON ?= python3
BIN := .venv/bin
CAMPAIGN ?=
MINUTES ?= 60
LAB ?= notebooks/explore.ipynb

.PHONY: reproduce reports lab publish test soak bench lint format lock

reproduce: .venv/ready
	@$(BIN)/fab provision
	$(BIN)/python workflow/reproduce.py

# what is recorded in the repository, without root: nothing is measured
reports: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml recorded/config.yaml
	printf 'Open: %s\n' "$$PWD"/reports/recorded/index.html

# LAB='--no-browser --port=8889' on a machine without a browser
lab: .venv/ready
	@root=
	[ "$$(id -u)" != 0 ] || root=--allow-root
	exec $(BIN)/jupyter lab $$root $(LAB)

# CAMPAIGN=recorded/config.yaml publishes what comes with the repository
publish: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml $(CAMPAIGN) -- publish
	ls -t "$$PWD"/publish/*.zip | head -n 1

test: .venv/ready
	@$(BIN)/fab provision --tests
	$(BIN)/pytest
	$(MAKE) -C hardware/probe test
	$(MAKE) -C hardware/generator test fuzz
	$(MAKE) -C hardware/dispatcher fuzz
	$(MAKE) -C hardware/simulator test

# an hour of random faults; MINUTES=10 is shorter
soak: .venv/ready
	@$(BIN)/fab provision
	$(BIN)/python tests/soak.py --minutes $(MINUTES)

bench: .venv/ready
	@$(BIN)/fab provision
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark"; done

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/snakefmt --check Snakefile workflow
	$(MAKE) -C hardware/probe format-check
	$(MAKE) -C hardware/scheduler format-check
	$(MAKE) -C hardware/generator format-check
	$(MAKE) -C hardware/dispatcher format-check
	$(MAKE) -C hardware/simulator format-check

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt Snakefile workflow

lock:
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header --no-annotate --output-file requirements.lock

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; set PYTHON to a newer one" >&2; exit 1; }
	if ! $(PYTHON) -c 'import ensurepip' 2> /dev/null; then
		echo "installing: python3-venv"
		{ apt-get update && apt-get install -y --no-install-recommends python3-venv; } > /dev/null 2>&1 ||
			{ echo "error: Python's venv is missing on this machine; as root: apt-get install python3-venv" >&2; exit 1; }
	fi
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet uv==$(UV_VERSION)
	# each job of the workflow is a Python of its own: where none may write bytecode it would compile its imports each time
	$(BIN)/uv pip sync --quiet --compile-bytecode requirements.lock
	$(BIN)/uv pip install --quiet --no-deps --editable .
	touch $@
