# The only list of commands. PIP_* variables pass through to pip.
PYTHON ?= python3
BIN := .venv/bin
PY_DIRS := protos service schedulers memory models bench cli
FLASHINFER := flashinfer-python apache-tvm-ffi filelock nvidia-ml-py packaging requests tqdm
PROTO := protos/walkway/v1/inference.proto protos/walkway/v1/admin.proto
PROTOC = $(BIN)/python -m grpc_tools.protoc -I . --python_out=$(1) --grpc_python_out=$(1) --pyi_out=$(1) $(PROTO) \
	&& $(BIN)/python -m protos.describe $(1)/protos/walkway.binpb

# The tests start a hundred processes; without cached bytecode each compiles everything again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help env check test demo serve protos docs bench image image-gpu clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

env: .venv/.installed  ## .venv with everything installed

.venv/.installed: pyproject.toml setup.py constraints.txt $(wildcard memory/kernels/native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,bench]"
	touch $@

# The tests import FlashInfer without its CUDA packages, which are 250 MB.
.venv/.flashinfer: .venv/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps --no-compile $(FLASHINFER)
	touch $@

check: env  ## lint, types, import rules, protos
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PY_DIRS)
	$(BIN)/lint-imports
	$(BIN)/buf lint
	rm -rf build/protos && mkdir -p build/protos && $(call PROTOC,build/protos)
	cmp build/protos/protos/walkway.binpb protos/walkway.binpb
	diff -r -x '*.proto' -x '__init__.py' -x '__pycache__' build/protos/protos/walkway/v1 protos/walkway/v1

test: env .venv/.flashinfer  ## all tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --max-worker-restart 0 \
		-m "not slow and not alone"; parallel=$$?; \
	$(BIN)/pytest -m "alone and not slow" $$(grep -l mark.alone tests/test_*.py) && exit $$parallel

demo: env  ## fetch the default model, serve it, stream an answer
	$(BIN)/walkway demo

serve: env  ## leave the service running
	$(BIN)/walkway serve

protos: env  ## generate the wire contract's code and descriptors
	$(call PROTOC,.)

docs: env  ## write the pages that are made from the code
	$(BIN)/python -m service.metrics.page > docs/metrics.md

bench: env  ## measure the service (see bench/compare.py --help)
	$(BIN)/python -m bench.compare $(ARGS)

image: ## build the container image
	docker build -t walkway .

image-gpu: ## build the container image for GPUs (see Dockerfile for its arguments)
	docker build --target gpu -t walkway:gpu $(ARGS) .

clean:  ## forget the environment
	rm -rf .venv build *.egg-info
