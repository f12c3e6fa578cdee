# This Makefile has short names for commands of uv, fab, snakemake and pytest (README.md lists the names).
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
PAPER := reports/recorded/paper.html
VIRTUAL := config/studies/migration_cost_virtual.yaml config/studies/single_core_virtual.yaml

.PHONY: reproduce reports paper lab publish check test offline soak bench docs rulegraph lint format tables lock

reproduce: .venv/ready
	@$(BIN)/fab provision
	$(BIN)/python workflow/reproduce.py

# Make the pages of the recorded campaign. This measures nothing and needs no root.
reports: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml recorded/config.yaml
	$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml $(VIRTUAL) recorded/virtual/config.yaml \
		-- reports/recorded/virtual/virtual.html
	printf 'Open: %s\n' "$$PWD"/reports/recorded/index.html "$$PWD"/reports/recorded/virtual/virtual.html

# Write the paper about the recorded campaign as a page and as a PDF. This measures nothing and needs no root.
paper: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml recorded/config.yaml -- $(PAPER)
	printf 'Open: %s\n' "$$PWD"/$(PAPER)
	if ! command -v chromium > /dev/null; then
		echo "note: chromium is missing, so no PDF was written; print the page in a browser"
		exit
	fi
	profile=$$(mktemp -d)
	trap 'rm -rf "$$profile"' EXIT
	# Chromium has no sandbox for root, and this page is the project's own.
	sandbox=
	[ "$$(id -u)" != 0 ] || sandbox=--no-sandbox
	chromium --headless=new --disable-gpu --no-first-run $$sandbox --user-data-dir="$$profile" \
		--no-pdf-header-footer --print-to-pdf=docs/paper/paper.pdf "file://$$PWD/$(PAPER)" 2> /dev/null
	printf 'Open: %s\n' "$$PWD"/docs/paper/paper.pdf

# On a machine without a browser, use: make lab LAB='--no-browser --port=8889'
lab: .venv/ready
	@root=
	[ "$$(id -u)" != 0 ] || root=--allow-root
	exec $(BIN)/jupyter lab $$root $(LAB)

# To publish the recorded campaign, use: make publish CAMPAIGN=recorded/config.yaml
publish: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml $(CAMPAIGN) -- publish
	ls -t "$$PWD"/publish/*.zip | head -n 1

# Run the tests that need neither root nor a testbed.
check: .venv/ready
	$(BIN)/pytest -m "not live and not guest" --numprocesses auto --dist worksteal

test: .venv/ready
	@$(BIN)/fab provision --tests
	# Tests that measure run one at a time. All other tests use all cores.
	$(BIN)/pytest -m "not live" --numprocesses auto --dist worksteal
	# Other work on this machine may disturb a run, so a test that fails is tried twice more, and the report names it.
	$(BIN)/pytest -m live --reruns 2 -raR
	$(MAKE) -C hardware/probe test
	$(MAKE) -C hardware/generator test fuzz
	$(MAKE) -C hardware/common fuzz
	$(MAKE) -C hardware/simulator test

# Make the offline bundle, and test it as root on a bare Debian system without a network.
offline: .venv/ready
	@$(BIN)/fab bundle
	$(BIN)/python tests/offline.py "$$(ls -t "$$PWD"/bundle/*.tar | head -n 1)"

# Test runs with random faults for an hour, and then a watch for an hour. For a shorter test, use: make soak MINUTES=10
soak: .venv/ready
	@$(BIN)/fab provision
	$(BIN)/python tests/soak.py --minutes $(MINUTES)
	$(BIN)/python tests/soak_watch.py --minutes $(MINUTES)

bench: .venv/ready
	@$(BIN)/fab provision
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark"; done

# After a change of a key or a rule, write the tables in config/README.md and docs/methodology/verdict.md.
tables: .venv/ready
	@$(BIN)/python -m sipsched.plan.described

# Build the documentation as a site from its pages and the docstrings.
docs: .venv/ready
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs . site
	printf 'Open: %s\n' "$$PWD"/site/docs/index.html

# After a change of the rules, draw docs/rulegraph.svg. This needs the Debian package graphviz.
rulegraph: .venv/ready
	@$(BIN)/snakemake --rulegraph dot --configfile config/config.yaml recorded/config.yaml 2> /dev/null |
		tred | dot -Tsvg > docs/rulegraph.svg

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/snakefmt --check Snakefile workflow
	$(MAKE) -C hardware/common format-check
	$(MAKE) -C hardware/probe format-check
	$(MAKE) -C hardware/scheduler format-check
	$(MAKE) -C hardware/generator format-check
	$(MAKE) -C hardware/dispatcher format-check
	$(MAKE) -C hardware/simulator format-check
	$(MAKE) -C hardware/virtual format-check

format: .venv/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt Snakefile workflow

lock:
	$(BIN)/uv pip compile pyproject.toml --group dev --group docs --group crate --universal --generate-hashes --no-header --no-annotate --output-file requirements.lock

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11; set PYTHON to a newer one" >&2; exit 1; }
	if ! $(PYTHON) -c 'import ensurepip' 2> /dev/null; then
		echo "installing: python3-venv"
		{ apt-get update && apt-get install -y --no-install-recommends python3-venv; } > /dev/null 2>&1 ||
			{ echo "error: Python's venv is missing on this machine; as root: apt-get install python3-venv" >&2; exit 1; }
	fi
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet uv==$(UV_VERSION)
	# Let Python write bytecode, because each job of the workflow is a new process, which would compile its imports again.
	$(BIN)/uv pip sync --quiet --compile-bytecode requirements.lock
	$(BIN)/uv pip install --quiet --no-deps --editable .
	touch $@
