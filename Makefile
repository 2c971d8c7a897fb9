# Two commands: `make demo` and `make test`. Both make their own virtual environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint clean

demo: .installed-core
	$(BIN)/streamgauge demo

test: .installed-test lint
	$(BIN)/pytest -n 2 --dist loadfile

lint: .installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Stamps, so that a second call installs nothing.
.installed-core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e .
	touch $@

.installed-test: .installed-core
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .installed-core .installed-test build src/*.egg-info
