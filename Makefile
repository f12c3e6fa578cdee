# The targets of this Makefile are short names for commands of uv, fab, snakemake and pytest. README.md lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory

UV_VERSION := 0.13.8
PYTHON ?= python3
BIN := .venv/bin
CAMPAIGN ?=
MINUTES ?= 60
LAB ?= notebooks/lab/explore.ipynb
CHECK := $(BIN)/pytest -m "not live" --numprocesses auto --dist worksteal
# These tests run at the same time as those of CHECK, so each group has its own list of failed tests.
LIVE := $(BIN)/pytest tests/live tests/faults -o cache_dir=.pytest_cache/live
PAPER := reports/recorded/paper.html
VIRTUAL_PAGES := $(patsubst %,reports/recorded/virtual/%.html,virtual scaling capacity_model_virtual kernels calibration \
	papers_virtual-virtual-papers \
	papers_logger_virtual-virtual-papers-logger papers_load_virtual-virtual-papers-logger \
	one_package_virtual-virtual-papers packages_virtual-virtual-papers-packages packages_load_virtual-virtual-papers-packages \
	packages $(patsubst %,packages_default_virtual-virtual-%,packages packages-612) \
	figure_2_virtual-virtual-papers figure_2_logger_virtual-virtual-papers-logger \
	old_kernel_virtual-virtual-papers-32 old_kernel_packages_virtual-virtual-papers-packages-32 \
	$(patsubst %,old_kernel_offline_6_virtual-virtual-32-%-6,packages nodes) \
	workers_single_core_virtual-virtual-510)
# The pages in virtual time link the pages of these testbeds.
VIRTUAL_TESTBEDS := $(patsubst %,reports/recorded/virtual/testbed-virtual-%.html,510 612 612-busy 2000 2000-busy papers papers-logger papers-packages \
	8cores packages 8cores-612 packages-612 papers-32 papers-packages-32 32-packages-6 32-nodes-6)
# benchmarks/papers_rows.py reads the summaries of these studies. A page about baseline and enhanced mode would show nothing, because both studies have
# no mode enhanced without changes.
VIRTUAL_SUMMARIES := $(foreach cores,2 4,$(patsubst \
	%,results/recorded/virtual/raw/old_kernel_offline_$(cores)_virtual/virtual-32-%-$(cores)/summary.nc,packages nodes))
# The records of runs in virtual time, in an unpacked folder per testbed
VIRTUAL_RECORDS := $(patsubst %.tar.xz,%/.unpacked,$(wildcard recorded/virtual/raw/*.tar.xz))
VIRTUAL := $(patsubst %,config/studies/%_virtual.yaml,migration_cost migration_cost_opensips single_core multi_core scaling papers \
	papers_packages papers_old_kernel packages_default kernels) \
	config/studies/calibration.yaml

.PHONY: reproduce reports paper lab publish check native test offline soak bench docs rulegraph lint format tables lock

reproduce: .venv/ready
	@$(BIN)/fab provision
	$(BIN)/python workflow/reproduce.py

recorded/virtual/raw/%/.unpacked: recorded/virtual/raw/%.tar.xz
	@rm -rf $(@D)
	$(PYTHON) -m tarfile --extract $< recorded/virtual/raw
	touch $@

# Make the pages of the recorded campaign. This target measures nothing, and does not need root.
reports: .venv/ready $(VIRTUAL_RECORDS)
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml $(VIRTUAL) recorded/virtual/config.yaml \
		-- $(VIRTUAL_PAGES) $(VIRTUAL_TESTBEDS) $(VIRTUAL_SUMMARIES)
	# The overview links the pages in virtual time that exist when it is made.
	$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml recorded/config.yaml
	printf 'Open: %s\n' $(addprefix "$$PWD"/,reports/recorded/index.html $(VIRTUAL_PAGES))

# Write the paper about the recorded campaign as a page and as a PDF. This target measures nothing, and does not need root.
paper: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml recorded/config.yaml -- $(PAPER)
	printf 'Open: %s\n' "$$PWD"/$(PAPER)
	if ! command -v chromium > /dev/null; then
		echo "note: chromium is missing, so no PDF was written; print the page in a browser"
		exit
	fi
	profile=$$(mktemp -d)
	trap 'rm -rf "$$profile"' EXIT
	# As root, Chromium starts only without its sandbox. This is safe, because the page comes from this project.
	sandbox=
	[ "$$(id -u)" != 0 ] || sandbox=--no-sandbox
	chromium --headless=new --disable-gpu --no-first-run $$sandbox --user-data-dir="$$profile" \
		--no-pdf-header-footer --print-to-pdf=docs/paper/paper.pdf "file://$$PWD/$(PAPER)" 2> /dev/null
	printf 'Open: %s\n' "$$PWD"/docs/paper/paper.pdf

# Open a notebook in JupyterLab. On a machine without a browser, use: make lab LAB='--no-browser --port=8889'
lab: .venv/ready
	@root=
	[ "$$(id -u)" != 0 ] || root=--allow-root
	exec $(BIN)/jupyter lab $$root $(LAB)

# Write an archive of a campaign. To publish the recorded campaign, use: make publish CAMPAIGN=recorded/config.yaml
publish: .venv/ready
	@$(BIN)/snakemake --config only_measured=True --configfile config/config.yaml $(CAMPAIGN) -- publish
	ls -t "$$PWD"/publish/*.zip | head -n 1

# Run the tests that need neither root nor a testbed.
check: .venv/ready
	$(CHECK)

# Run the tests of the C programs, with sanitizers and with random input.
native:
	@$(MAKE) -C hardware/probe test
	$(MAKE) -C hardware/generator test fuzz
	$(MAKE) -C hardware/common fuzz
	$(MAKE) -C hardware/simulator test

test: .venv/ready
	@$(BIN)/fab provision --tests
	# Tests that measure run one at a time. Most of them tolerate other work, so the tests without a measurement use the rest of
	# the CPU time, as programs of the class SCHED_IDLE. The tests that failed beside each other are repeated alone. The exit
	# code 1 of pytest means that tests failed, and 5 that there are none. A program that starts while autogroup is on competes with
	# programs of other sessions on equal terms, even with the class SCHED_IDLE, so autogroup is off during the tests.
	autogroup=/proc/sys/kernel/sched_autogroup_enabled was=
	said=$$(mktemp) others=
	trap '[ -z "$$others" ] || kill "$$others" 2> /dev/null || true; rm -f "$$said"; [ -z "$$was" ] || echo "$$was" > $$autogroup' EXIT
	if [ -w $$autogroup ]; then was=$$(cat $$autogroup); echo 0 > $$autogroup; fi
	{ chrt --idle 0 $(MAKE) native && chrt --idle 0 $(CHECK) --cache-clear || [ $$? = 1 ]; } > "$$said" 2>&1 &
	others=$$!
	$(LIVE) -m "not quiet and not long" --cache-clear || [ $$? = 1 ]
	wait "$$others" || { cat "$$said"; exit 1; }
	grep -E "^(SKIPPED|FAILED|ERROR)|^=.* passed" "$$said"
	$(CHECK) --last-failed --last-failed-no-failures none || [ $$? = 5 ]
	$(LIVE) -m "not quiet and not long" --last-failed --last-failed-no-failures none || [ $$? = 5 ]
	# Other work may disturb these runs, too, so pytest repeats a failed test up to twice, and names it in the report.
	$(LIVE) -m "quiet and not long" --reruns 2 -raR

# Make the offline bundle, and test it as root on a bare Debian system without a network.
offline: .venv/ready
	@$(BIN)/fab bundle
	$(BIN)/python tests/offline.py "$$(ls -t "$$PWD"/bundle/*.tar | head -n 1)"

# Inject the faults that `make test` leaves out. Then test runs with random faults for an hour, and `fab watch` for an hour. For a
# shorter test, use: make soak MINUTES=10
soak: .venv/ready
	@$(BIN)/fab provision
	$(LIVE) -m long
	$(BIN)/python tests/soak.py --minutes $(MINUTES)
	$(BIN)/python tests/soak_watch.py --minutes $(MINUTES)

bench: .venv/ready
	@$(BIN)/fab provision
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark"; done

# Write the tables of configuration keys (config/README.md) and verdict rules (docs/methodology/verdict.md) from the code.
tables: .venv/ready
	@$(BIN)/python -m sipsched.plan.described

# Build the documentation as a site from its pages and the docstrings.
docs: .venv/ready
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs . site
	printf 'Open: %s\n' "$$PWD"/site/docs/index.html

# Draw docs/rulegraph.svg, which shows the rules of the workflow. This target needs the Debian package graphviz.
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
	# Compile all packages to bytecode now. If Python may not write bytecode later (PYTHONDONTWRITEBYTECODE), each job of the
	# workflow (a new process) would compile them again.
	$(BIN)/uv pip sync --quiet --compile-bytecode requirements.lock
	$(BIN)/uv pip install --quiet --no-deps --editable .
	$(BIN)/python -m compileall -q src
	touch $@
