# Geminga: `make run` starts a cluster, `make test` checks everything; `make help` lists the rest.
#
# Needs Python 3.11 or newer with venv, make, and a package index that pip can reach. Nothing else:
# no Java, no root, nothing outside this folder but the user's cache (XDG_CACHE_HOME or ~/.cache).

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup run spark-demo test test-full test-java test-compat test-containers check lint types mypy pyright unit integration long protocol bench docs torture simulate clean

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
SOURCES := runtime protocol client bookie broker proxy functions_worker cli spark_jobs docker tests
# The first Python that is new enough; `make PYTHON=python3.13 ...` chooses another.
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
# Where this is set, as in many containers, each process of the tests would rewrite the asserts of 800 files
# anew: half of the time that collecting takes. `make clean` removes what is written.
unexport PYTHONDONTWRITEBYTECODE
# pip shows its progress to people, and says nothing to files and pipes but what goes wrong.
PIP = quiet=--quiet; [ ! -t 1 ] || quiet=; $(BIN)/python -m pip install --disable-pip-version-check $$quiet

help:  ## say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/:.*## /\t/' | expand -t 17

setup: $(BIN)/.runs  ## make .venv, install Geminga, fetch ZooKeeper (the first time: 456 MB)
	@$(BIN)/python -m compileall -q $(SOURCES)
	@$(BIN)/geminga setup

run: setup  ## start a cluster and show how to use it; ARGS="--data-dir /tmp/d" passes options on
	@exec $(BIN)/geminga standalone $(ARGS)

test: $(BIN)/.develops  ## linters, types, import rules, all tests but the long ones (14 min on two cores)
	@$(MAKE) --no-print-directory -j2 mypy lint unit
	@$(MAKE) --no-print-directory integration

# pyright, the second judge of types, works on one core for minutes: beside tests that wait.
test-full: $(BIN)/.develops setup  ## what `make test` leaves out: pyright, the long tests, a thousand more seeds (25 min)
	@$(MAKE) --no-print-directory -j2 $(if $(ARGS),,pyright) long

long:
	$(PYTEST) -m full --timeout 1800 -n 3 --dist loadfile --no-loadscope-reorder $(ARGS) || { code=$$?; [ $$code -eq 5 ] || exit $$code; }

# Needs a JDK, and Apache's jars: from the Apache Pulsar in PULSAR_HOME, or from Maven Central by `mvn` (the
# first time: 420 MB, into the user's cache), or as class paths in BOOKKEEPER_CLASSPATH and PULSAR_CLIENT_CLASSPATH.
test-java: $(BIN)/.develops setup  ## Pulsar's Java client, and BookKeeper's client and bookies, with ours, where Java is
	@$(PYTEST) -m java tests/bookkeeper tests/java_client $(ARGS)

# Needs Java, and Apache Pulsar: unpacked in PULSAR_HOME, or fetched by `mvn` (the first time: 240 MB, into the
# user's cache).
test-compat: $(BIN)/.develops setup  ## our client, the official one and Spark, with Geminga and with Apache Pulsar (5 min)
	@$(PYTEST) -m compat tests/compat $(ARGS)

# Needs root and, the first time, Debian's packages (500 MB, into the user's cache); touches nothing else here.
test-containers: $(BIN)/.develops  ## images and the compose file in real container engines, where root can start them
	@$(PYTEST) -m containers tests/containers --timeout 3600 -o log_cli=true --log-cli-level=INFO $(ARGS)

# Side by side: the slowest of them works on one core.
check: $(BIN)/.develops  ## linters, types, import rules
	@$(MAKE) --no-print-directory -j2 pyright mypy lint

lint: $(BIN)/.develops
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: mypy pyright

mypy: $(BIN)/.develops
	$(BIN)/mypy $(SOURCES)

pyright: $(BIN)/.develops
	$(BIN)/pyright --pythonpath $(BIN)/python

unit: $(BIN)/.develops
	$(PYTEST) --ignore tests/integration -m "not integration and not full and not java and not compat and not containers" -n 2 $(ARGS)

# More workers than cores: these tests wait for processes most of their time. A file stays with one worker,
# so that its tests share a cluster, and all of Spark's files do, so that they share a session. Only the folders
# that have such tests are collected, and each worker collects for itself: all of them took it 20 s of CPU.
integration: $(BIN)/.develops setup
	$(PYTEST) $(if $(findstring tests/,$(ARGS)),,tests/integration tests/differential) -m "integration and not full" -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

protocol: $(BIN)/.develops  ## generate the protocol modules anew from protocol/**/*.proto
	$(BIN)/python protocol/generate.py

# PySpark is not among what `make run` needs: it is installed here, where the checks have not done it already.
spark-demo: $(BIN)/.sparks setup  ## a cluster, a million events, Spark, a report with charts: ends by itself (3 min)
	@$(BIN)/python -m pyspark_geminga.demo $(ARGS)

bench: $(BIN)/.develops setup  ## measure; PEER=pulsar compares with the Apache Pulsar in PULSAR_HOME
	$(BIN)/python -m tests.performance $(if $(PEER),--peer $(PEER)) $(ARGS)

docs: $(BIN)/.develops  ## build the reference of the client and the plugin for pytest: docs/reference/index.html
	$(BIN)/python -m pdoc --no-show-source --output-directory docs/reference geminga geminga.sync geminga.arrow pytest_geminga

torture: $(BIN)/.develops setup  ## kill parts of clusters under load, cut their power and links, miss nothing (60 min)
	$(BIN)/python -m tests.torture $(ARGS)

# A story alone is told by the code of `geminga simulate`: ARGS="--seed 42 --trace" or "--seed 42 --shrink".
simulate: $(BIN)/.develops  ## many seeds of the simulation: SEEDS=10000 unless told (40 min); STORY=ledgers alone
	$(if $(STORY),$(BIN)/python -m tests.simulation "$(STORY)" --seeds $(or $(SEEDS),1000) --jobs 2 $(ARGS),GEMINGA_SEEDS=$(or $(SEEDS),10000) $(PYTEST) tests/simulation -n 2 --timeout 1800 $(ARGS))

clean:  ## remove .venv and everything that tools leave behind; data and the user's cache stay
	rm -rf $(VENV) dist docs/reference .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment ---------------------------------------------------------------------------

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "make: Python 3.11 or newer is needed and was not found (looked for python3," \
		"python3.11 to 3.14). Get it from python.org or your system's packages, or name yours:" \
		"make PYTHON=/path/to/python setup" >&2; exit 1; }
	@command -v "$(PYTHON)" >/dev/null || { echo "make: there is no program $(PYTHON): name a Python 3.11 or" \
		"newer with PYTHON=, or leave it out to have one looked for" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is no Python" \
		"3.11 or newer: name another with PYTHON=, or leave it out to have one looked for" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) comes without venv and pip." \
		"On Debian and Ubuntu: apt install python3-venv (or python3.X-venv for Python 3.X)" >&2; exit 1; }
	@echo "make: making $(VENV) with $(PYTHON) (some seconds)"
	@"$(PYTHON)" -m venv $(VENV)

$(BIN)/.runs: pyproject.toml | $(BIN)/python
	@echo "make: installing Geminga and the packages it needs into $(VENV) (half a minute, less where pip has" \
		"them already)"
	@$(PIP) --editable '.[standalone,compression,encryption]' \
		|| { echo "make: pip could not install Geminga; its words are above. It needs a package index:" \
		"behind a proxy or with an index of your own, set it up with 'pip config' first" >&2; exit 1; }
	@touch $@

$(BIN)/.sparks: pyproject.toml | $(BIN)/.runs
	@echo "make: installing PySpark and Arrow into $(VENV) (a minute; PySpark alone is 456 MB)"
	@$(PIP) --editable '.[standalone,compression,encryption,spark]'
	@touch $@

$(BIN)/.develops: $(BIN)/.runs
	@echo "make: installing what checks and tests need into $(VENV) (a minute; PySpark alone is 456 MB)"
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --group dev
	@touch $@
