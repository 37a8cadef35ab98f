# One virtual environment, one stamp: installed again only when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install study test test-slow plans lint format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, found $$($(PYTHON) --version); set PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(STAMP)

study: install
	$(BIN)/vsr study micro --quick

test: install
	$(BIN)/python -m pytest -n auto --dist loadfile

# SLOW: files to take, all by default.
test-slow: install
	$(BIN)/python -m pytest -n auto --dist load -m slow $(SLOW)

plans: install
	$(BIN)/python -m vsr_jax.study.plan_table tpu/PLANS.md

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python benchmarks/verifiers.py

clean:
	rm -rf .venv build *.egg-info
