# `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
# Half as many again as there are cores: many a test waits for a server or a database.
WORKERS := $(shell echo $$((($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2)))

# The first Python on the path that is new enough.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$each && break; done)

.DEFAULT_GOAL := help
.PHONY: help install run test fast slow model check format lock

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

install: ## set up .venv with all that memserver needs
	@test -n "$(PYTHON)" || { \
		echo "No Python 3.11 or newer on the path. Install one, or name it: make install PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) scripts/setup_environment.py

run: install ## install, then serve on http://127.0.0.1:8283
	$(BIN)/memserver serve

test: ## install, then the checks and every tier of tests
	@$(MAKE) --no-print-directory -j2 check model

fast: install
	$(PYTEST) --numprocesses=$(WORKERS) --dist=worksteal

slow: fast
	$(PYTEST) -m slow --numprocesses=$(WORKERS) --dist=worksteal

model: slow
	$(PYTEST) -m model --numprocesses=2 --dist=loadfile --no-loadscope-reorder # an engine takes some 2 GB

check: install ## lint, format, types, import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## format, and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: install ## lock the dependencies anew (ARGS=--upgrade for newer ones)
	$(BIN)/python scripts/lock.py $(ARGS)
