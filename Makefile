# make demo    train the default preset end to end and print where the picture is
# make quick   the tests for the inner loop: no process, no whole run; under a minute on two cores
# make test    all tests, and the slowest twenty
# make check   format, lint, types, import layers
# make crash   kill, fail and cut off the power of a tiny run at every step that it takes on disk
# make bench   how fast it is, as tables and in benchmarks/results; make bench-quick only prints
# make tables  Tables II to IV of the MPI article, ten executions each: ten minutes on two free cores
# make fuzz    every reader of files against 10,000 damaged ones each; half an hour
# make oldest  the quick tests with the oldest dependencies allowed

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OLDEST := .venv-oldest
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PYTEST := -m pytest -n auto --dist worksteal
SPEED := step convolutions phases exchange startup portable memory scale predict

.PHONY: install demo quick test fuzz crash check oldest format bench bench-quick tables clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "remuda needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(PIP_INSTALL) -c constraints-oldest.txt -e '.[dev]'
	@touch $@

demo: install
	$(BIN)/remuda train quickstart

quick: install
	$(BIN)/python $(PYTEST) -rfE -m "not slow" $(ARGS)

test: install
	$(BIN)/python $(PYTEST) --durations=20 $(ARGS)

fuzz: install
	FUZZ_INPUTS=$${FUZZ_INPUTS:-10000} $(BIN)/python $(PYTEST) tests/fuzz/test_readers.py $(ARGS)

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python $(PYTEST) -rfE -m "not slow" $(ARGS)

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

crash: install
	REMUDA_CRASH=all $(BIN)/python $(PYTEST) -rP tests/test_crashes.py $(ARGS)

bench: install
	@set -e; for name in $(SPEED); do $(BIN)/python -m benchmarks.$$name; done

bench-quick: install
	@set -e; for name in $(SPEED) tables; do $(BIN)/python -m benchmarks.$$name --quick; done

tables: install
	$(BIN)/python -m benchmarks.tables --page docs/results/mpi-tables.md

clean:
	rm -rf $(VENV) $(OLDEST) build dist *.egg-info src/*.egg-info
