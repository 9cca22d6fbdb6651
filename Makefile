# `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
# Half as many again as there are cores: many a test waits for a server or a database.
WORKERS := $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2)))

SPREAD := $(PYTEST) --numprocesses=$(WORKERS) --dist=worksteal
# Not every module is imported to find a few dozen tests.
MODEL_TESTS := $(shell grep -rl --include='test_*.py' 'mark\.model' tests)

# The first Python on the path that is new enough.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$each && break; done)

.DEFAULT_GOAL := help
.PHONY: help packages install run test tests fast slow model clients nightly check format supply lock
# The checks and the model's tests run beside the other tests, and a failure of one doesn't hide another's.
MAKEFLAGS += --jobs=3 --keep-going

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

# All but the local model's engine, which only its own tests wait for.
packages:
	@test -n "$(PYTHON)" || { \
		echo "No Python 3.11 or newer on the path. Install one, or name it: make install PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) scripts/setup_environment.py --without-engine

install: packages ## set up .venv with all that memserver needs
	@$(PYTHON) scripts/setup_environment.py

run: install ## install, then serve on http://127.0.0.1:8283
	$(BIN)/memserver serve

test: check tests model ## install, then the checks and every test

tests: packages
	$(SPREAD) -m "not gpu and not model"

fast: packages ## the tests that take seconds at most
	$(SPREAD)

slow: packages ## kills, crowds of processes, trainings
	$(SPREAD) -m slow

model: install ## the tests with the real local model
	$(PYTEST) -m model --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(MODEL_TESTS) # an engine takes some 2 GB

clients: packages ## install the clients of OpenAI's API and of MCP that the night's tests drive
	$(BIN)/python -m tests.clients.programs

nightly: ## every test, with many more kills, fuzzed replies and requests, chaos, and a soak: hours
	NIGHTLY=1 $(MAKE) test
	$(BIN)/python -m tests.chaos --minutes 10
	$(BIN)/python -m tests.chaos --minutes 5 --embedded
	$(BIN)/python -m benchmarks.soak --minutes 30

check: packages ## lint, format, types, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: packages ## format, and fix what the linter can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# In an environment of their own, so that they look at ours without being in it.
TOOLS := $(VENV)-supply
AUDITORS := pip-audit==2.10.1 cyclonedx-bom==7.5.0 pip-licenses==5.5.5
COPYLEFT := AGPL;GPLv2;GPLv3;GNU General Public License;GNU Affero

supply: packages ## known vulnerabilities, licences that forbid our use, and the SBOM (sbom.json)
	@test -x $(TOOLS)/bin/pip-audit || { $(PYTHON) -m venv $(TOOLS) && $(TOOLS)/bin/pip install --quiet $(AUDITORS); }
	$(TOOLS)/bin/pip-licenses --python $(BIN)/python --from=mixed --fail-on="$(COPYLEFT)" --summary
	$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --of JSON --output-file sbom.json
	$(TOOLS)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints/server.txt

lock: packages ## lock the dependencies again (ARGS=--upgrade for newer ones)
	$(BIN)/python scripts/lock.py $(ARGS)
