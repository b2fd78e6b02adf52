# `make serve` opens the wiki, `make test` runs what a change calls for; `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
LOCK = $(BIN)/uv pip compile --universal --python-version 3.11 --no-header --quiet --generate-hashes \
	--no-build-isolation-package deepspeed
# Browsers, servers and launches of many ranks share two cores. What is red among them (1: all ran, some failed) has to be
# green alone; both reports are printed. What was, is listed, and red the second time: `tests/support/second_chance.py`.
alone = || { test $$? = 1 && echo "What failed, once more, alone:" && \
	SECOND_CHANCE=build/second-chance.txt $(changed) $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(1); }

# What the change since the base calls for, and a sample of the rest; `tests/support/selection.py` says how.
changed = $(if $(ALL)$(ONLY),,SELECT=changed)

# A folder below tests/, or a package by its name.
only = $(foreach name,$(ONLY),$(or $(wildcard packages/$(name)/tests),tests/$(name)))

CODE := scripts packages tests conftest.py

# A container image may forbid it; but who runs a thousand commands wants what Python compiled to be kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve site install quick test lint test-frameworks test-cluster evidence bench fuzz packages sbom audit lock clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

serve: .venv/site.stamp ## build the wiki, serve it, rebuild what changes
	@$(BIN)/readyonce serve --open

site: .venv/site.stamp ## build the wiki once, into site/
	@$(BIN)/readyonce site

install: .venv/tests.stamp ## install all that runs and tests need (torch, DeepSpeed, transformers); run nothing

quick: .venv/quick.stamp ## in about a minute: format, and what needs no torch, no browser, no network, no site
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/python -m pytest --numprocesses 2 --dist worksteal tests/unit

test: lint packages ## build the wiki and run what the change calls for; ALL=1: every test; ONLY="runs guard": those of a folder or a package
	@$(changed) $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(only) \
		$(call alone,$(only))

lint: .venv/quick.stamp .venv/tests.stamp ## check the code, its format, its types and who imports whom
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/mypy
	@PYTHONPATH=scripts $(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/node tests/lighthouse/node_modules/@biomejs/biome/bin/biome lint --error-on-warnings

test-frameworks: .venv/tests.stamp ## run the frameworks' own commands, in their current versions: what changed, and a sample; ALL=1: all
	@$(changed) $(BIN)/python -m pytest -m frameworks $(call alone,-m frameworks)

test-cluster: .venv/tests.stamp ## a verify and a triage on a Slurm that it starts here, errors on two hosts, the Kubernetes manifest; as root, and not part of `test` or CI
	@scripts/system-packages slurm-wlm munge iproute2
	@$(LOCKED) --no-compile --upgrade --target .venv/kubernetes -r tests/kubernetes.txt
	@$(BIN)/python -m pytest -m cluster tests/cluster

evidence: .venv/tests.stamp ## run everything in every environment, and store what it showed; ON=tcp://... on a Dask cluster
	@$(BIN)/readyonce verify --write $(if $(ON),--on $(ON))

bench: .venv/tests.stamp ## print how long things take, as ratios
	@$(BIN)/python tests/bench/bench.py
	@$(BIN)/python tests/bench/diagnose.py
	@$(BIN)/python tests/bench/lighthouse.py
	@$(BIN)/python tests/bench/repeated.py
	@$(BIN)/python tests/bench/scale.py

fuzz: .venv/tests.stamp ## look for a text that breaks `diagnose`, `triage` or `lint` (WHICH=triage), for MINUTES=10
	@$(BIN)/python tests/fuzz/fuzz.py $(or $(MINUTES),10) $(or $(WHICH),diagnose)

packages: ## what the tests need of the system; as root on Debian it is installed
	@scripts/system-packages openssl chromium firefox-esr shellcheck libpangoft2-1.0-0 fonts-noto-cjk fonts-open-sans nginx

sbom: .venv/tools.stamp ## the bill of materials of what builds the wiki: build/sbom.cdx.json
	@mkdir -p build
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o build/sbom.cdx.json requirements.txt

audit: .venv/tools.stamp ## known vulnerabilities of the locked packages; asks an advisory service on the network
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.txt

lock: .venv/tests.stamp ## pin again: what the site needs, and what each environment brings with it
	@$(LOCK) requirements.in -o requirements.txt
	@$(LOCK) -c requirements.txt --excludes tests/not-locked.txt --no-emit-package torch --no-emit-package pip \
		tests/requirements.in -o tests/requirements.txt
	@$(LOCK) -c requirements.txt -c tests/requirements.txt tests/quick.in -o tests/quick.txt
	@# botocore excludes the site's python-dateutil: that one is free here.
	@sed '/^python-dateutil==/,/[^\]$$/d' requirements.txt tests/requirements.txt > .venv/others.txt
	@$(LOCK) -c .venv/others.txt tests/s3.in -o tests/s3.txt
	@$(LOCK) --no-deps tests/kubernetes.in -o tests/kubernetes.txt
	@for list in $(filter-out %/current.txt,$(wildcard snippets/environments/*.txt)); do \
		echo "$$list"; $(LOCK) --no-annotate --no-emit-package torch --no-emit-package torchvision $$list \
			-o snippets/environments/locks/$${list##*/} || exit 1; done

clean: ## remove what was built, but not .venv
	rm -rf build site

# ---- what is installed; nothing to do while the lists are unchanged

# Every package has a hash, and what has no wheel (jieba, DeepSpeed, drain3) is built by the setuptools of the list, nothing else
# being fetched. torch alone has none: which of its many builds is right, the machine decides.

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HASHED := --require-hashes --no-deps --no-build-isolation --only-binary :all:
LOCKED := $(PIP) $(HASHED)
FAST := $(BIN)/uv pip install --quiet $(HASHED)
# What a list has of one package.
entry = sed '/^$(1)==/,/[^\]$$/!d' $(2)

.venv/site.stamp: requirements.txt pyproject.toml
	@echo "Installing what the wiki needs ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, for example: make site PYTHON=python3.12" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(call entry,setuptools,requirements.txt) > .venv/setuptools.txt
	@$(LOCKED) -r .venv/setuptools.txt
	@$(LOCKED) --no-binary jieba -r requirements.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/quick.stamp: .venv/site.stamp tests/quick.txt
	@echo "Installing what the quick tests need ..."
	@$(LOCKED) -r tests/quick.txt
	@touch $@

.venv/tools.stamp: .venv/site.stamp tests/requirements.txt
	@echo "Installing what the tests need (DeepSpeed, transformers, peft ...) ..."
	@# With uv: it fetches many at once, and compiles none (Python compiles what is imported, a small part of it).
	@$(call entry,uv,tests/requirements.txt) > .venv/uv.txt
	@$(LOCKED) -r .venv/uv.txt
	@$(FAST) --python .venv --no-binary deepspeed --no-binary drain3 -r tests/requirements.txt
	@touch $@

.venv/s3.stamp: .venv/tools.stamp tests/s3.txt
	@$(FAST) --target .venv/s3 -r tests/s3.txt
	@touch $@

.venv/tests.stamp: .venv/tools.stamp .venv/s3.stamp snippets/environments/current.txt tests/lighthouse/package-lock.json
	@echo "Installing torch ..."
	@torch=$$(grep ^torch== snippets/environments/current.txt); \
		{ test -n "$$UV_TORCH_BACKEND" && $(BIN)/uv pip install --quiet --python .venv "$$torch"; } || \
		$(PIP) --no-compile "$$torch"
	@$(BIN)/npm ci --prefix tests/lighthouse --silent
	@touch $@
