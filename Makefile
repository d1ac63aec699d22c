PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow format clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: .venv/.stamp ## create .venv and install efmdp with pinned versions

# The stamp makes every later call instant until the dependencies change.
.venv/.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "efmdp needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": try make PYTHON=python3.11")'
	@echo "Installing into .venv (a few minutes the first time)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --disable-pip-version-check -e '.[plots,video,log,dev]' -c constraints.txt
	@touch $@

run: setup ## train on 3 switches, test on 1 to 6: runs/demo/summary.html (6 minutes on 2 cores)
	$(BIN)/efmdp demo --out runs/demo

test: setup ## lint, type check and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

test-slow: setup ## the learning tests
	$(BIN)/pytest -m slow

format: setup ## format and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove .venv and caches, keep runs
	rm -rf .venv *.egg-info build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find efmdp tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
