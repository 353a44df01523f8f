"""Writes docs/metrics.md from the metrics themselves: `python -m service.metrics.page`."""

import os

from prometheus_client import Metric

from service.metrics import Metrics

SUFFIX = {"counter": "_total", "info": "_info"}
MANY = 11
HEADER = """# Metrics

Written by `make docs` from the code; `tests/test_metrics_page.py` fails on a difference.

`GET /metrics` on `metrics.host`:`metrics.port` (127.0.0.1:9464) answers in Prometheus' text
format, or in OpenMetrics' when asked for. Everything named `walkway_` also has the label
`model_name`: the setting `model.source`, as in `GetModelInfo`. Every value of every other label
is there from the start, at 0. A histogram has `_bucket`, `_sum` and `_count`. Gauges of the
engine are 0 while none serves, those of its process are absent. A method that does not exist is
counted as `unknown`. Health checks and reflection are methods like any other.

| metric | type | labels | what |
|---|---|---|---|
"""
COMPARED = """
## For those who come from vLLM

| vLLM | here |
|---|---|
"""
VLLM = {
    "vllm:num_requests_running": 'walkway_requests{state="running"}',
    "vllm:num_requests_waiting": 'walkway_requests{state="waiting"}',
    "vllm:num_requests_swapped": 'walkway_requests{state="swapped"}',
    "vllm:kv_cache_usage_perc": 'walkway_kv_pages{state="held"} / ignoring(state) '
    "walkway_kv_capacity_pages",
    "vllm:cache_config_info": "walkway_kv_capacity_pages, walkway_kv_page_tokens",
    "vllm:prefix_cache_queries": "walkway_cached_tokens_total + walkway_input_tokens_total",
    "vllm:prefix_cache_hits": "walkway_cached_tokens_total",
    "vllm:prompt_tokens_total": "walkway_cached_tokens_total + walkway_input_tokens_total",
    "vllm:generation_tokens_total": "walkway_output_tokens_total",
    "vllm:num_preemptions_total": "sum(walkway_preemptions_total)",
    "vllm:iteration_tokens_total": "walkway_step_tokens",
    "vllm:request_success_total": "walkway_requests_finished_total",
    "vllm:time_to_first_token_seconds": "walkway_time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds": "walkway_inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds": "walkway_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds": "walkway_request_seconds",
    "vllm:request_queue_time_seconds": "walkway_queue_seconds",
    "vllm:request_prefill_time_seconds": "walkway_prefill_seconds",
    "vllm:request_decode_time_seconds": "walkway_decode_seconds",
    "vllm:request_prompt_tokens": "walkway_request_prompt_tokens",
    "vllm:request_generation_tokens": "walkway_request_output_tokens",
}


def page() -> str:
    """The whole file."""
    rows = "".join(map(_row, every_metric()))
    compared = "".join(f"| `{theirs}` | `{ours}` |\n" for theirs, ours in VLLM.items())
    return HEADER + rows + COMPARED + compared


def every_metric() -> list[Metric]:
    """What a service shows while an engine serves it."""
    metrics = Metrics("model")
    metrics.process.engine_up(os.getpid())
    metrics.process.connections.watch({"inference": 0, "admin": 0})
    return list(metrics.exposed().collect())


def _row(metric: Metric) -> str:
    name = metric.name + SUFFIX.get(metric.type, "")
    labels = ", ".join(_label(metric, name) for name in _labels(metric))
    return f"| `{name}` | {metric.type} | {labels} | {metric.documentation} |\n"


def _labels(metric: Metric) -> list[str]:
    names = dict.fromkeys(name for sample in metric.samples for name in sample.labels)
    return [name for name in names if name not in ("model_name", "le")]


def _label(metric: Metric, name: str) -> str:
    """With its values, where these are few and not of this machine."""
    values = list(dict.fromkeys(s.labels[name] for s in metric.samples if name in s.labels))
    if metric.type == "info" or len(values) > MANY:
        return f"`{name}`"
    return f"`{name}`: {', '.join(values)}"


if __name__ == "__main__":
    print(page(), end="")
