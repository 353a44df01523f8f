# Two stages: one with a compiler makes the environment, the other only carries it.
#
# Elsewhere than on a machine whose pip is set up for a CPU build of torch, say where one is:
#   docker build --build-arg TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu -t walkway .
# Run it with the ports and, to keep the fetched model, the cache:
#   docker run -p 50051:50051 -p 9464:9464 -v walkway-cache:/home/walkway/.cache walkway
# or with a model of your own:
#   docker run -p 50051:50051 -v /models/mine:/model:ro -e WALKWAY_MODEL__SOURCE=/model walkway
ARG BASE=python:3.11-slim-bookworm

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

FROM ${BASE}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --uid 10001 --create-home walkway \
    && install -d -o walkway -g walkway /home/walkway/.cache
COPY --from=builder /opt/walkway /opt/walkway
ENV PATH=/opt/walkway/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WALKWAY_SERVER__HOST=0.0.0.0 \
    WALKWAY_METRICS__HOST=0.0.0.0
USER walkway
WORKDIR /home/walkway
EXPOSE 50051 9464
# The model may have to be fetched first.
HEALTHCHECK --interval=10s --timeout=10s --start-period=300s --retries=3 \
    CMD ["python", "-m", "service.healthcheck"]
ENTRYPOINT ["walkway"]
CMD ["serve"]
