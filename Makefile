# `make demo`, `make test` (what CI runs), `make test-all` (long tests too). Each makes its own virtual
# environment first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-all lint clean

demo: .installed-core
	$(BIN)/streamgauge demo

test: .installed-test .installed-browser lint
	$(BIN)/pytest -n 2 --dist worksteal

# Ray shares the machine badly with other tests, so these run one after another.
test-all: test
	$(BIN)/pytest -m "long or ray"

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

# The report is opened in a real browser. Where Debian's package manager is ours to use, it comes
# from there; elsewhere that one test is skipped and says so.
.installed-browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	|| echo "No Chromium here and no way to install one: the browser test will be skipped."
	touch $@

clean:
	rm -rf $(VENV) .installed-core .installed-test .installed-browser build src/*.egg-info
