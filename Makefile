# `make demo`, `make test` (what CI runs), `make test-all` (long tests too), `make docs` (the
# site). Each makes its own virtual environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all test-lowest fuzz coverage mutation lint docs clean

demo: .installed-demo
	$(BIN)/streamgauge demo

# Two cores: the browser is installed while the packages are, the core while the linters run.
test:
	$(MAKE) --no-print-directory -j2 .installed-test .installed-browser
	$(MAKE) --no-print-directory -j2 lint .installed-core
	$(BIN)/pytest -n 2 --dist worksteal

# Ray shares the machine badly with other tests, so these run one after another.
test-all: test
	$(BIN)/pip $(INSTALL) '.[docs,notebooks]'
	$(BIN)/pytest -m "long or ray"

# Inputs made from valid ones by mutation; INPUTS=10000 is a short run. The same command goes on
# where it stopped.
INPUTS ?= 1000000
SEED ?= 0
FUZZED := build/fuzz-$(INPUTS)-$(SEED).json
fuzz: .installed-test
	$(BIN)/python tests/fuzz/driver.py --inputs $(INPUTS) --seed $(SEED) --workers 2 --state $(FUZZED)

# The lowest versions that pyproject.toml allows, in an environment of their own.
LOWEST := $(VENV)/lowest
test-lowest: .installed-test
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(BIN)/python tests/house/lowest.py > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/pip install -q -r $(LOWEST)/requirements.txt pytest hypothesis setuptools pandas==2.2.3
	PYTHONPATH=$(CURDIR)/src $(LOWEST)/bin/python -m pytest tests/tables tests/history tests/metrics tests/cost \
	  tests/record tests/audit/test_audit_log.py tests/models/test_small.py tests/running/test_loop.py

# Lines and branches by room.
coverage: .installed-test
	$(BIN)/pip install -q coverage
	$(BIN)/coverage run --branch --source=src/streamgauge -m pytest -p no:xdist
	$(BIN)/coverage report --skip-covered

mutation: .installed-test
	$(BIN)/python tests/house/mutation.py

lint: .installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, in build/site.
docs: .installed-docs
	$(BIN)/python docs/build_site.py

# Stamps, so that a second call installs nothing.
INSTALL := install --disable-pip-version-check -q -c constraints.txt -e

.installed-demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(INSTALL) '.[torch]'
	touch $@

.installed-test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(INSTALL) '.[test]' --no-compile  # Python compiles what the tests import
	touch .installed-demo $@

.installed-docs: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(INSTALL) '.[docs]'
	touch .installed-demo $@

# An environment with the core alone, for the test that the core needs no torch. The audit compiles
# its loops, so that the tests find them compiled.
CORE := $(VENV)/core

.installed-core: .installed-test
	test -x $(CORE)/bin/python || $(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip $(INSTALL) .
	$(CORE)/bin/streamgauge audit tests/corpus/v0.1/finished/albums-er-s0-dd0dadf2 >/dev/null
	touch $@

# The report is opened in a real browser. Where Debian's package manager is ours to use, it comes
# from there; elsewhere that one test is skipped and says so.
.installed-browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| echo "No Chromium here and no way to install one: the browser test will be skipped."
	touch $@

clean:
	rm -rf $(VENV) .installed-* build src/*.egg-info
