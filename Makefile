# `make help` lists the targets. Set-up (Python, torch, test tools) happens by itself, once, in the
# user's cache folder; CEPHALO_PYTHON chooses another Python.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# go-nvml declares functions that NVIDIA has deprecated.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
GO_PACKAGES ?= ./...
PYTEST_ARGS ?=
TORCH_VERSIONS ?= 2.8.0 newest
CHAOS_ARGS ?=
DEMO_ARGS ?= --batch-size 8 --steps 150 --log-every 10

# In a recipe: $(with_python) leaves the path of the Python in $$python, $(with_tools) that of the
# folder with pytest and ruff in $$tools; either ends the recipe if set-up fails.
with_python := python=$$(scripts/setup.sh) || exit $$?
with_tools := $(with_python); tools=$$(scripts/setup.sh --tools "$$python") || exit $$?

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: go ## Build bin/cephalorun and, with a C compiler, bin/cephalorun-nvml
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/cephalorun ./cmd/cephalorun
	@if command -v "$$(go env CC)" >/dev/null; then \
		echo "CGO_ENABLED=1 go build -o bin/cephalorun-nvml ./cmd/cephalorun-nvml"; \
		CGO_ENABLED=1 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/cephalorun-nvml ./cmd/cephalorun-nvml; \
	else \
		echo "no C compiler ($$(go env CC)): bin/cephalorun-nvml, which reads NVIDIA GPUs, is left out" >&2; \
	fi

.PHONY: demo
demo: build ## Train a small GPT on three unequal virtual devices, under 4 minutes
	@$(with_python); set -x; \
	bin/cephalorun --python "$$python" --devices examples/devices-cpu.yaml \
		--compare-even 8 examples/train_gpt.py $(DEMO_ARGS)

.PHONY: test
test: test-go test-python ## Run every test, under 12 minutes on 2 cores

.PHONY: test-go
test-go: go ## Run the Go tests, gofmt and vet
	@$(MAKE) --no-print-directory gofmt
	go vet $(GO_PACKAGES)
	@$(with_tools); echo "go test $(GO_PACKAGES)"; \
	CEPHALO_PYTHON="$$python" PYTHONPATH="$$tools" go test $(GO_PACKAGES)

.PHONY: test-python
test-python: ## Run the Python tests on the chosen Python
	@$(with_tools); scripts/test-python.sh "$$python" "$$tools" $(PYTEST_ARGS)

.PHONY: test-chaos
test-chaos: build ## Train on CPU ranks under two random faults (the short form of chaos)
	scripts/chaos.sh --faults 2 --exact --seed 1

.PHONY: chaos
chaos: build ## Train on CPU ranks for 30 minutes under random faults (CHAOS_ARGS)
	scripts/chaos.sh $(CHAOS_ARGS)

.PHONY: test-matrix
test-matrix: ## Run the Python tests on torch 2.8 and on the newest (TORCH_VERSIONS)
	@for version in $(TORCH_VERSIONS); do \
		python=$$(scripts/setup.sh --torch "$$version") || exit $$?; \
		tools=$$(scripts/setup.sh --tools "$$python") || exit $$?; \
		echo "torch $$version"; \
		scripts/test-python.sh "$$python" "$$tools" $(PYTEST_ARGS) || exit $$?; \
	done

.PHONY: gofmt
gofmt:
	@unformatted=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l) || exit $$?; \
	[ -z "$$unformatted" ] || { echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; }

.PHONY: lint
lint: go gofmt ## Check formatting, vet, staticcheck, go.mod and the Python style
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff
	@$(with_tools); set -x; "$$tools/bin/ruff" check . && "$$tools/bin/ruff" format --check .

.PHONY: smoke
smoke: build ## Train for two minutes with checks, on whatever this machine has
	scripts/smoke.sh

.PHONY: bench
bench: build ## Run the benchmarks that need no GPU
	go test -run '^$$' -bench . -benchmem ./solver/...
	@$(with_python); set -x; "$$python" scripts/bench/main.py --cpu --suites accumulation,equal,one

.PHONY: bench-gpu
bench-gpu: build ## Compare with stock FSDP2 on one GPU cut into parts
	scripts/bench-gpu.sh

.PHONY: clean
clean: ## Remove what was built (not the cache folder)
	rm -rf bin .ruff_cache .pytest_cache

.PHONY: go
go:
	@scripts/check-go.sh
