# `make demo` needs Python 3.11 or newer and make, nothing else. `make help` lists everything.
SHELL := /bin/sh
VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN := $(VENV)/bin/python
MANAGE := $(RUN) manage.py
# A development checkout needs no secrets; an installation sets these variables itself (.env.example).
DEV := DEBUG=$${DEBUG:-true} LOG_LEVEL=$${LOG_LEVEL:-WARNING}
# One more than cores: the groups of ONE_BY_ONE (tests/conftest.py) wait for browsers and clusters a third of their time.
PYTEST_ARGS ?= -n 3
# Extras to install: ldap, saml, tracing, sentry (requirements/README.md).
EXTRAS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-reset serve test coverage mutation check format bench docs messages lock cluster cluster-stop install-demo install-dev

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | sort | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

install-demo:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found (name one: make PYTHON=/path/to/python3)"; exit 1; }
	@$(PYTHON) requirements/install.py $(VENV) base notebook $(EXTRAS)

install-dev: install-demo
	@$(PYTHON) requirements/install.py $(VENV) dev

setup: install-dev  ## the environment with everything for development

demo: install-demo  ## the whole portal on this machine, with people, quotas and live work; Ctrl-C stops it
	@$(DEV) EMBEDDED=true $(MANAGE) demo

demo-reset: install-demo  ## the demo from the beginning: forgets what was done in it
	@$(DEV) EMBEDDED=true $(MANAGE) demo --reset

serve: install-demo  ## web, worker, beat and watcher against DATABASE_URL and REDIS_URL (.env)
	@./deploy/serve

test: install-dev  ## all tests, on real servers that start and stop by themselves (PYTEST_ARGS=… for some of them)
	@$(RUN) -m pytest $(PYTEST_ARGS)

# Tests of the pure modules, which only compute (the contract "pure-rooms" in .importlinter lists them).
PURE_TESTS := tests/engine tests/sharing tests/workloads/test_lifecycle.py tests/workloads/kubernetes \
	$(addprefix tests/workloads/runtime/test_,rank_environment.py gangs.py last_lines.py) tests/workloads/requests/test_exports.py

coverage: install-dev  ## every branch of the rooms that only compute is taken by a test (pyproject.toml, tool.coverage)
	@QUICK=1 $(RUN) -m coverage run -m pytest -q -n 0 -o timeout=600 --hypothesis-seed=0 -p no:cacheprovider $(PURE_TESTS) && $(RUN) -m coverage report

MUTANTS ?=
mutation: install-dev  ## changes the engine line by line and sees whether a test notices (docs/mutation.md); hours
	@QUICK=1 VIRTUAL_ENV=$(VENV) $(VENV)/bin/uv run --active --no-project --with mutmut==3.8.1 mutmut run --max-children 1 $(MUTANTS)

check: install-dev  ## linters, types, import contracts, migrations, messages, compose file, Dockerfile
	@VENV=$(VENV) ./.ci/check

format: install-dev  ## what the linters can mend by themselves
	@$(RUN) -m ruff check --fix . && $(RUN) -m ruff format .

bench: install-dev  ## the figures in bench/README.md, measured here
	@$(DEV) $(RUN) -m bench

docs: install-dev  ## docs/gpu-sharing.md, from the modules of workloads/sharing, and the chart's dashboards
	@$(RUN) scripts/gpu_sharing.py && $(RUN) scripts/dashboards.py

messages: install-dev  ## takes new sentences from code and templates into locale/*.po
	@$(DEV) $(MANAGE) messages

lock: install-dev  ## makes requirements/*.txt from *.in (LOCK_ARGS=--upgrade takes newer versions)
	@for name in base notebook ldap saml tracing sentry dev installer; do \
	  $(VENV)/bin/uv pip compile requirements/$$name.in -o requirements/$$name.txt --universal --python-version 3.11 \
	    --generate-hashes --quiet --custom-compile-command 'make lock' $(LOCK_ARGS) || exit 1; done

cluster:  ## a throw-away Kubernetes on this machine (tests/cluster/README.md)
	@tests/cluster/kit start --real-node

cluster-stop:  ## ends it
	@tests/cluster/kit stop
