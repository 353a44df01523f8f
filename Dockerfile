# Two images, of which stages with a compiler make the environment and the last only carries it:
# the default one for CPUs, `--target gpu` for NVIDIA's GPUs.
#
# Elsewhere than on a machine whose pip is set up for a CPU build of torch, say where one is:
#   docker build --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu -t walkway .
# Run it with the ports and, to keep the fetched model, the cache:
#   docker run -p 50051:50051 -p 9464:9464 -v walkway-cache:/home/walkway/.cache walkway
# or with a model of your own:
#   docker run -p 50051:50051 -v /models/mine:/model:ro -e WALKWAY_MODEL__SOURCE=/model walkway
#
# The GPU image has FlashInfer's kernels compiled for the compute capabilities, head_dims and
# dtypes it is built for, and can compile no others: 8.0 for A100 (and 8.6, 8.9), 9.0a for H100
# and H200, 10.0a for B200, 12.0f for RTX 50; `walkway doctor` and the start refuse others.
# CUDA_IMAGE has nvcc in /usr/local/cuda, of the CUDA version that TORCH_INDEX_URL's torch is
# made for:
#   docker build --target gpu --build-arg FLASHINFER_CUDA_ARCH_LIST=9.0a \
#     --build-arg HEAD_DIMS=128 --build-arg DTYPES="bf16 fp16" -t walkway:gpu .
#   docker run --gpus all --read-only --tmpfs /tmp -p 50051:50051 \
#     -v walkway-cache:/home/walkway/.cache walkway:gpu
# Several ranks (engine.tensor_parallel) talk through /dev/shm, of which a container gets
# 64 MiB unless it is run with --ipc=host (or --shm-size).
ARG BASE=python:3.11-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${BASE} AS builder
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
WORKDIR /src
COPY constraints.txt .
ARG TORCH_INDEX_URL=
# torch alone and first: the largest layer, and it changes least.
RUN python -m venv /opt/walkway \
    && /opt/walkway/bin/pip install --no-cache-dir --constraint constraints.txt \
        ${TORCH_INDEX_URL:+--index-url ${TORCH_INDEX_URL}} torch
COPY pyproject.toml setup.py README.md ./
COPY protos protos
COPY service service
COPY schedulers schedulers
COPY memory memory
COPY models models
COPY bench bench
COPY cli cli
# The kernels are optional elsewhere; an image without them would be slow for no reason. What
# only serves to compile against torch stays behind.
RUN /opt/walkway/bin/pip install --no-cache-dir --constraint constraints.txt . \
    && cd / && packages=$(/opt/walkway/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))') \
    && test -f "$packages/memory/kernels/libwalkway.so" \
    && rm -rf "$packages"/torch/include "$packages"/torch/share/cmake "$packages"/torch/test \
    && find "$packages/torch/bin" -type f ! -name torch_shm_manager -delete \
    && find "$packages" -name '*.a' -delete

FROM ${CUDA_IMAGE} AS cuda

FROM ${BASE} AS gpu-builder
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ ninja-build \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
WORKDIR /src
COPY constraints.txt .
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cu130
RUN python -m venv /opt/walkway \
    && /opt/walkway/bin/pip install --no-cache-dir --constraint constraints.txt \
        ${TORCH_INDEX_URL:+--index-url ${TORCH_INDEX_URL}} torch
# FlashInfer and what its import needs: the rest of its list is 250 MB for kernels not used.
RUN /opt/walkway/bin/pip install --no-cache-dir --constraint constraints.txt \
        filelock numpy nvidia-ml-py packaging requests tqdm typing_extensions \
    && /opt/walkway/bin/pip install --no-cache-dir --constraint constraints.txt --no-deps \
        apache-tvm-ffi flashinfer-python
COPY --from=cuda /usr/local/cuda/ /usr/local/cuda/
# No more of our code than this, so that other changes leave the kernels as they are.
COPY memory/__init__.py memory/
COPY memory/kernels/__init__.py memory/kernels/interface.py memory/kernels/
COPY memory/attention/__init__.py memory/attention/interface.py \
    memory/attention/flashinfer_kernels.py memory/attention/
ARG FLASHINFER_CUDA_ARCH_LIST="8.0 9.0a"
ARG HEAD_DIMS="64 128"
ARG DTYPES=bf16
RUN CUDA_HOME=/usr/local/cuda FLASHINFER_WORKSPACE_BASE=/tmp/flashinfer \
    /opt/walkway/bin/python -m memory.attention.flashinfer_kernels --aot \
        $(printf -- '--head-dim %s ' ${HEAD_DIMS}) $(printf -- '--dtype %s ' ${DTYPES}) \
    && rm -rf /tmp/flashinfer
COPY pyproject.toml setup.py README.md ./
COPY protos protos
COPY service service
COPY schedulers schedulers
COPY memory memory
COPY models models
COPY bench bench
COPY cli cli
# The sources that the kernels were made of stay behind, but for those that FlashInfer names
# its modules by.
RUN /opt/walkway/bin/pip install --no-cache-dir --constraint constraints.txt . \
    && cd / && packages=$(/opt/walkway/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))') \
    && test -f "$packages/memory/kernels/libwalkway.so" \
    && find "$packages/flashinfer/data" "$packages/flashinfer/data/csrc" -mindepth 1 -maxdepth 1 \
        -type d ! -name aot ! -name csrc -exec rm -rf {} + \
    && rm -rf "$packages"/torch/include "$packages"/torch/share/cmake "$packages"/torch/test \
    && find "$packages/torch/bin" -type f ! -name torch_shm_manager -delete \
    && find "$packages" -name '*.a' -delete

FROM ${BASE} AS runtime
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --uid 10001 --create-home walkway \
    && install -d -o walkway -g walkway /home/walkway/.cache
ENV PATH=/opt/walkway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WALKWAY_SERVER__HOST=0.0.0.0 \
    WALKWAY_METRICS__HOST=0.0.0.0
USER walkway
WORKDIR /home/walkway
EXPOSE 50051 9464
# The model may have to be fetched first. Ready, not live: what waits for a healthy container
# wants to be served. Where an unhealthy one is restarted, ask for "live".
HEALTHCHECK --interval=10s --timeout=10s --start-period=300s --retries=3 \
    CMD ["python", "-m", "service.healthcheck", "ready"]
ENTRYPOINT ["walkway"]
CMD ["serve"]

FROM runtime AS gpu
COPY --from=gpu-builder /opt/walkway /opt/walkway
# FlashInfer's import writes, also where it finds its kernels compiled.
ENV FLASHINFER_DISABLE_JIT=1 \
    FLASHINFER_WORKSPACE_BASE=/tmp/flashinfer \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM runtime
COPY --from=builder /opt/walkway /opt/walkway
