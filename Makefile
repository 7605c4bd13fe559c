PYTHON ?= python3
VENV := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)/python
.PHONY: help env run test lab notebooks bench evidence check clean
help: ## what can be made (this list)
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
env: ## everything installed: .venv, and an older torch under .torches; SETUP=--unpack
	@$(PYTHON) env/create.py $(SETUP)
run: env ## every notebook executed, as its reader would
	$(VENV) -m cases.notebook.runner
test: env ## all tests
	$(VENV) -m pytest
lab: env ## the first notebook, open in JupyterLab
	$(VENV) -m jupyterlab --allow-root --LabApp.app_settings_dir="$(CURDIR)/env/jupyter" notebooks/00_start_here.ipynb
notebooks: env ## the committed outputs made again, and the pages and tables
	$(VENV) -m cases.notebook.runner --refresh
	$(VENV) -m cases.lab.recorded_words
	$(VENV) -m cases.notebook.errors_page
	$(VENV) -m cases.notebook.papers
bench: env ## how long an answer takes; and what other tools say, at what cost
	$(VENV) tests/bench.py
	$(VENV) tests/bench_peers.py --write
evidence: env ## every case recorded on every torch that can be had: what is missing or old
	$(VENV) env/evidence.py $(ARGS)
check: env ## every failure still fails, every fix still does what it says
	$(VENV) -m cases check
clean: ## what was installed or built here, removed
	rm -rf build .pytest_cache .ruff_cache
	@$(PYTHON) env/create.py --remove
