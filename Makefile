# make demo · make test · make check · make bench — CI calls the same.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LINT_ENV := SECRET_KEY=check DATABASE_URL=postgres://nobody@127.0.0.1:1/none KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:1

.DEFAULT_GOAL := help
.PHONY: help demo test check guards bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

$(VENV)/.installed: requirements.txt requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "shopmicro needs Python 3.11 or later: set PYTHON=")'
	@echo "installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { echo "shopmicro needs Python's venv module (Debian: apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

demo: $(VENV)/.installed ## the whole system on this machine, and the walk before your eyes (ONCE=1, BROKER=kafka, PORT=)
	@$(BIN)/python -m shopmicro.embedded.demo

test: $(VENV)/.installed ## all tests, on a real PostgreSQL and a real Kafka (ARGS= for pytest)
	@$(BIN)/python -m pytest --numprocesses 3 --dist worksteal $(ARGS)

check: $(VENV)/.installed ## format, lint, types, import rules, Django's own checks
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(LINT_ENV) $(BIN)/mypy .
	@$(BIN)/lint-imports --no-logo
	@$(LINT_ENV) $(BIN)/python manage.py check
	@$(LINT_ENV) $(BIN)/python -W ignore manage.py makemigrations --check --dry-run

guards: $(VENV)/.installed ## take each guard away, in a copy, and see which test notices
	@$(BIN)/python -m tests.guards

bench: $(VENV)/.installed ## the benchmarks, product and peers by turns (QUESTION=p1)
	@$(BIN)/python -m benchmarks $(QUESTION)

clean: ## remove what the targets above made
	@rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
