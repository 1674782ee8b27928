# Two commands on a fresh machine: `make demo` and `make test`. Both first make .venv, with the versions of constraints.txt.

PYTHON ?= python3
PYTEST_ARGS ?=
DEMO_RUN := outputs/demo/$(shell date +%Y-%m-%d_%H-%M-%S)

.PHONY: env demo test test-oldest lint types clean

env: .venv/installed

demo: .venv/installed
	.venv/bin/python examples/train.py task=digits timing=evaluation hydra.run.dir=$(DEMO_RUN)
	@.venv/bin/lightning-timing report $(DEMO_RUN) --html $(DEMO_RUN)/timing.html >/dev/null
	@echo "The figures: $(DEMO_RUN)/timing/summary.json, as a page: $(DEMO_RUN)/timing.html"

# Tests that measure real time come last, one by one: beside others they would measure those too.
test: .venv/installed
	.venv/bin/pytest -n 2 -m "not alone" $(PYTEST_ARGS)
	.venv/bin/pytest -m alone $(PYTEST_ARGS)

# The same tests on the oldest versions that pyproject.toml allows.
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/pytest -n 2 -m "not alone" $(PYTEST_ARGS)
	.venv-oldest/bin/pytest -m alone $(PYTEST_ARGS)

lint: .venv/installed
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types: .venv/installed
	.venv/bin/mypy

clean:
	rm -rf .venv .venv-oldest build dist outputs multirun .mypy_cache .pytest_cache .ruff_cache

.venv/installed: constraints.txt
.venv-oldest/installed: constraints-oldest.txt
.venv/installed .venv-oldest/installed: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --constraint $(filter %.txt,$^) --editable '.[dev]'
	touch $@
