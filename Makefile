# Grove. `make demo` and `make test` set themselves up; nothing else needs to be installed but Python 3.11+ (and Go for tests).
PYTHON ?= python3
KUBE ?= 1.36.3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# More than cores: much of a test on a real control plane is waiting. Each worker has control planes of its own (1 GB).
WORKERS ?= 4
PARALLEL := -n $(WORKERS)

.DEFAULT_GOAL := help
MINUTES ?= 5
.PHONY: help demo test unit lint audit audit-rbac bench soak chaos coverage scale test-node answer test-failover test-keda test-karpenter test-helm test-kueue test-vpa test-gitops test-browser image engines test-image crds charts docs docs-site kube-bin clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/runtime: requirements/build.txt requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Grove needs Python 3.11 or newer; $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing dependencies into $(VENV)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@rm -f $(VENV)/lib/python3*/site-packages/grove.pth
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/browser: $(VENV)/dev requirements/browser.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/browser.txt
	@touch $@

$(VENV)/docs: $(VENV)/dev requirements/docs.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

$(VENV)/coverage: $(VENV)/dev requirements/coverage.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/coverage.txt
	@touch $@

demo: $(VENV)/runtime ## a whole inference system on a cluster inside the process, live in the terminal
	@$(BIN)/python -m grove demo

test: $(VENV)/dev ## everything that must hold: lint, unit, simulator, real control planes
	@$(MAKE) --no-print-directory -j 2 lint unit
	@$(MAKE) --no-print-directory docs-site
	@for v in 1.36.3 1.35.4; do $(PYTHON) tools/kube/kube_bin.py $$v > /dev/null || exit 1; done
	@if command -v chromium > /dev/null; then $(MAKE) --no-print-directory $(VENV)/browser; else echo "no Chromium here: tests of the console in a browser are skipped"; fi
	$(PYTEST) tests --ignore=tests/unit -m "not soak" $(PARALLEL)

unit: $(VENV)/dev ## the fast tests, in seconds
	$(PYTEST) tests/unit -m "not soak" -q -n 2

lint: $(VENV)/dev ## ruff, mypy --strict, import-linter, plain words in pages
	$(BIN)/ruff check src tests bench chaos tools
	$(BIN)/ruff format --check src tests bench chaos tools
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/plain_words.py

audit: $(VENV)/dev ## known vulnerabilities of the pinned wheels, as pip's index reports them
	$(BIN)/python tools/audit.py

audit-rbac: $(VENV)/dev ## every right the chart grants was used: the tests on real control planes under audit logs; 15 to 30 minutes
	@echo "every test on a real control plane, each with an audit log; takes 15 to 30 minutes on two cores, installs nothing"
	@$(PYTHON) tools/kube/kube_bin.py 1.36.3 > /dev/null
	@rm -rf build/audit && mkdir -p build/audit
	@export GROVE_AUDIT_DIR=$(CURDIR)/build/audit; failed=0; \
	$(PYTEST) tests --ignore=tests/unit --ignore=tests/kube --ignore=tests/rbac -m "not soak" -k real -p tests.rbac.recording $(PARALLEL) || failed=1; \
	$(PYTEST) tests/rbac -p tests.rbac.recording || failed=1; \
	$(BIN)/python -m tests.rbac build/audit && exit $$failed

coverage: $(VENV)/coverage ## lines and branches reached by unit, simulator and real tiers together, by package; about 40 minutes
	@echo "all tests of all tiers, measured; takes about 40 minutes on two cores, installs a package into $(VENV) only"
	@for v in 1.36.3 1.35.4; do $(PYTHON) tools/kube/kube_bin.py $$v > /dev/null || exit 1; done
	@$(BIN)/coverage erase
	@if command -v chromium > /dev/null; then $(MAKE) --no-print-directory $(VENV)/browser; fi
	-$(BIN)/coverage run -m pytest tests -m "not soak" -q -n $(WORKERS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage json -q -o .coverage.json
	@$(BIN)/python tools/coverage_by_package.py .coverage.json

scale: $(VENV)/dev ## 1,000 sets on 100, 1,000 and 10,000 nodes of a stock control plane: time, CPU, memory; about 20 minutes
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	$(BIN)/python -m bench.scale

bench: $(VENV)/dev ## figures, as a table and as bench-results.json
	@echo "all benchmarks, one after another; takes about 30 minutes on two cores, installs nothing"
	$(BIN)/python -m bench

soak: $(VENV)/dev ## long seeded fault runs
	@echo "long seeded runs on the simulator and on real control planes; takes hours, installs nothing; the fleets continue where they were interrupted"
	$(PYTEST) tests -m soak

chaos: $(VENV)/dev ## break everything on a real control plane for MINUTES (5) and watch over the promises; SEED=n plays one again
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	$(BIN)/python -m chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

test-node: $(VENV)/dev ## two real nodes with containerd, Services, DNS and engines; Grove installed with and without Helm; needs root
	@echo "every file of tests/node on two real nodes of its own; takes about 25 minutes on two quiet cores and 30 more the first time; needs root, Go and 6 GB of disk; installs the Debian packages that are missing, and they stay"
	@$(BIN)/python -m tools.real_nodes
	@$(MAKE) --no-print-directory image engines
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	GROVE_IMAGES=$(CURDIR)/dist $(BIN)/python -m tests.node -v -s

answer: $(VENV)/runtime ## real engines on two real nodes answer, lose a worker, scale, update; ends with a table; needs root
	@echo "real engines on two real nodes of this machine; takes about 10 minutes on two quiet cores and 30 more the first time; needs root, Go and 6 GB of disk; installs the Debian packages that are missing, and they stay"
	@$(BIN)/python -m tools.real_nodes
	@$(MAKE) --no-print-directory image
	@$(BIN)/python -m tools.engines llama-cpp-rpc dynamo
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	$(BIN)/python -m tools.answer

test-failover: $(VENV)/dev ## leaders killed, stopped, cut off, their leases edited: how long no process decides, and which writes; 6 minutes
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "two operators and two schedulers on a control plane of this machine; takes about 6 minutes, installs nothing"
	$(PYTEST) tests/failover -v -s

test-keda: $(VENV)/dev ## real KEDA takes a group to zero and back by Grove's numbers; builds KEDA once, twenty minutes
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "KEDA itself, its metrics server and a group that goes to zero; takes 3 minutes and 20 more the first time, installs nothing"
	$(BIN)/python -m tests.keda.build
	$(PYTEST) tests/keda -m soak -v -s

test-karpenter: $(VENV)/dev ## real Karpenter buys nodes for a gang, in one zone; builds Karpenter once
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "Karpenter itself with KWOK nodes, and gangs that wait for nodes; takes 5 minutes and 10 more the first time, installs nothing"
	$(BIN)/python -m tests.karpenter.build
	$(PYTEST) tests/karpenter -m soak -v -s

test-helm: $(VENV)/dev ## real Helm 4 waits for a set: install, upgrade, a time-out, a set that stalls; builds Helm once
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "Helm 4 on a control plane of this machine; takes 2 minutes and 10 more the first time, installs nothing"
	$(BIN)/python -m tests.helm.build
	$(PYTEST) tests/helm -m soak -v -s

test-kueue: $(VENV)/dev ## the real Kueue admits, preempts and releases gangs; builds Kueue once
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "Kueue on a control plane of this machine; takes 5 minutes and 5 more the first time, installs nothing"
	$(BIN)/python -m tests.kueue.build
	$(PYTEST) tests/kueue -m soak -v -s

test-vpa: $(VENV)/dev ## the real VerticalPodAutoscaler recommends, evicts and resizes pods of a clique; builds VPA once
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "VPA on a control plane of this machine; takes 3 minutes and 10 more the first time, installs nothing"
	$(BIN)/python -m tests.vpa.build
	$(PYTEST) tests/vpa -m soak -v -s

test-gitops: $(VENV)/dev ## the real krew installs kubectl grove; the real InferencePool and HTTPRoute; builds krew once
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE) > /dev/null
	@echo "krew, and the kinds of gateways on a control plane of this machine; takes 3 minutes and 2 more the first time, installs nothing"
	$(BIN)/python -m tests.gitops.build
	$(PYTEST) tests/gitops -m soak -v -s

test-browser: $(VENV)/browser ## every page of the console in Chromium (apt-get install chromium), with axe-core; needs npm
	@echo "takes about 3 minutes, installs axe-core into $(VENV) only; Chromium must be there"
	@mkdir -p $(VENV)/axe && cd $(VENV)/axe && (test -f package/axe.min.js || (npm pack --silent axe-core@4.14.0 > /dev/null && tar -xzf axe-core-*.tgz))
	GROVE_AXE=$(CURDIR)/$(VENV)/axe/package/axe.min.js $(PYTEST) tests/browser -v -s

image: $(VENV)/runtime ## both container images as OCI archives in dist/, without Docker; ARCH=arm64: for Arm, in dist/arm64; OTEL=1: with traces
	@echo "both images into dist/; takes a minute, fetches pinned Debian packages and wheels once, installs nothing"
	@$(BIN)/python tools/image $(if $(ARCH),--arch $(ARCH)) $(if $(OTEL),--otel)

engines: $(VENV)/runtime ## images of samples/engines that run without GPUs, as OCI archives in dist/engines; builds llama.cpp once, 12 CPU minutes
	@echo "three images into dist/engines; takes 5 minutes and 12 more the first time, installs nothing; needs cmake, ninja and a C++ compiler"
	@$(BIN)/python -m tools.engines

test-image: $(VENV)/dev image ## the images' own root: what is in them runs, quickly, without root rights; needs root for chroot
	@echo "unpacks both images, runs them in their own roots, builds them again; takes about 5 minutes, installs nothing"
	GROVE_IMAGES=$(CURDIR)/dist $(PYTEST) tests/install/test_image.py -v -s

crds: $(VENV)/dev ## write src/grove/crds/*.yaml from the Structs
	$(BIN)/python -m tools.crds.generate

charts: ## render charts/*.yaml from charts/grove, with a helm that is built if need be
	@HELM="$$($(PYTHON) tools/kube/kube_bin.py helm)" sh charts/render.sh
	@HELM="$$($(PYTHON) tools/kube/kube_bin.py helm)" sh charts/inference/render.sh

docs: $(VENV)/dev ## write docs/api-reference.md and the pictures in docs/pictures
	$(BIN)/python -m tools.crds.reference
	$(BIN)/python tools/pictures.py
	$(BIN)/python tools/dashboard.py
	@if command -v chromium > /dev/null; then $(MAKE) --no-print-directory $(VENV)/browser && $(BIN)/python tools/screenshots.py; else echo "no Chromium here: the console's pictures stay as they are"; fi

docs-site: $(VENV)/docs ## the documentation as a site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

kube-bin: ## print the directory with the control plane of version KUBE, building it if needed
	@$(PYTHON) tools/kube/kube_bin.py $(KUBE)

clean: ## remove what make made here (built control planes in the cache stay)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* bench-results.json
