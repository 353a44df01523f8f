"""The start that the service makes, with random weights: the backend that `auto` takes, a
first and a trial step, graphs twice, a pool of what is left. What then answers is held
against the exact model.

On a CPU the same over emulated kernels, but without choosing a backend and asking a device
for its memory.
"""

import time
from dataclasses import dataclass

from bench.gpu.findings import Findings
from bench.gpu.judge import judge
from bench.gpu.logits import rounding
from bench.gpu.made import SEED, made, random_tokens, small_shape
from bench.gpu.place import Place
from bench.gpu.room import PAGE_SIZE, Room
from bench.gpu.rows import greedy
from memory.attention.interface import KVSpec
from models.batch import AheadRunner
from models.config import ModelConfig
from models.device_start import Demands, Machine, start_on_device
from models.layers import LayerReader
from models.linear import plain
from models.llama import Llama
from models.load import LoadOptions, bring_up
from models.pools import PoolWish
from models.random_weights import SMOLLM2_135M, RandomWeights
from models.shard import LONE
from models.trial import StepSize

MOST = StepSize(8, 64)
FREE_BYTES = 2**22  # of a CPU that is a pretended device
HOST_BYTES = 2**24
OUTPUT = 24


@dataclass(frozen=True, slots=True)
class Started:
    runner: AheadRunner
    num_pages: int
    host_pages: int


def check(place: Place, findings: Findings) -> None:
    shapes = {"small shape": small_shape()}
    if place.on_gpu:
        shapes["default shape"] = SMOLLM2_135M
    for name, config in shapes.items():
        if findings.out_of_time(name):
            return
        began_s = time.perf_counter()
        start = _as_served if place.on_gpu else _pretended
        started = start(place, findings, config)
        place.sync()
        findings.figure(f"{name}: start", time.perf_counter() - began_s, "s")
        findings.figure(f"{name}: pages", started.num_pages)
        findings.expect(started.host_pages > 0, f"{name}: no pages on the host")
        _answers(place, findings, name, config, started)
        del started
        place.clear()


def _as_served(place: Place, findings: Findings, config: ModelConfig) -> Started:
    """With the settings' defaults, but for what a step holds and pages on the host."""
    options = LoadOptions(
        "", device=place.device, host_bytes=HOST_BYTES, max_rows=MOST.rows,
        max_step_tokens=MOST.tokens,
    )  # fmt: skip
    loaded = bring_up(config, RandomWeights(SEED, place.device, place.dtype), options)
    served = f"{loaded.attention} ({loaded.attention_why}), {loaded.dtype}"
    findings.expect(loaded.attention == "flashinfer", f"what serves is {served}")
    findings.note(served)
    return Started(loaded.runner, loaded.num_pages, loaded.host_pages)


def _pretended(place: Place, findings: Findings, config: ModelConfig) -> Started:
    heads = (config.num_q_heads, config.num_kv_heads, config.head_dim)
    spec = KVSpec(config.num_layers, *heads, PAGE_SIZE, place.dtype, place.device)
    attention = place.attention(spec, MOST.rows, -(-config.context_tokens // PAGE_SIZE))
    weights = RandomWeights(SEED, place.device, place.dtype)
    decoder = LayerReader(config, weights, place.dtype, plain).decoder()
    demands = Demands(PoolWish(host_bytes=HOST_BYTES), MOST, config.context_tokens)
    machine = Machine(lambda: FREE_BYTES, place.recorder())
    model = Llama(config, decoder, attention)
    running = start_on_device(model, attention, demands, machine, LONE)
    return Started(running.runner, running.num_pages, running.host_pages)


def _answers(
    place: Place, findings: Findings, name: str, config: ModelConfig, started: Started
) -> None:
    """Requests whose last steps are graphs' and whose pages are the last of the pool."""
    prompts = [random_tokens(config, 4 + 5 * i, seed=i) for i in range(4)]
    found = greedy(started.runner, prompts, OUTPUT, started.num_pages)
    exact = made(place, config, "exact", Room(63, 0, MOST.rows, MOST.tokens))
    runner = exact.runner(place.recorder())
    expected = greedy(runner, prompts, OUTPUT, exact.num_pages)
    tie = rounding(place, exact, prompts[-1]).tie
    verdict = judge(exact, prompts, expected, found, tie)
    findings.expect(not verdict.wrong, f"{name}: {'; '.join(verdict.wrong[:3])}")
    findings.figure(f"{name}: same answers as in float32", verdict.same / len(prompts))
