"""The device runner on the FlashInfer backend, of which only the compiled kernels are
pretended: trial step, pool, graphs, swap, two steps in flight."""

import dataclasses
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from bench.flashinfer_emulation import Emulation, emulated
from memory.attention.flashinfer import FlashInferAttention
from models.batch import Sampling, StepBatch
from models.device_runner import DeviceRunner
from models.device_start import Demands, Machine, start_on_device
from models.pools import PoolWish
from models.random_weights import SMOLLM2_135M, RandomWeights
from models.shard import LONE
from models.trial import StepSize
from tests.device_models import Request, Tiny, run

CONFIG = dataclasses.replace(
    SMOLLM2_135M,
    num_layers=2,
    vocab_size=300,
    hidden_size=128,
    intermediate_size=192,
    num_q_heads=6,
    num_kv_heads=2,
    context_tokens=256,
    qk_norm=True,
)
TINY = Tiny(CONFIG, RandomWeights(3, "cpu", torch.bfloat16), torch.bfloat16)
SAMPLED = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.2, seed=5, logprobs=2)


@pytest.fixture
def kernels() -> Iterator[Emulation]:
    with emulated() as emulation:
        yield emulation


def start(kernels: Emulation, graphs: bool) -> DeviceRunner:
    kind = partial(FlashInferAttention, max_rows=8, max_pages_per_row=64)
    attention = TINY.attention(kind)
    machine = Machine(lambda: 2**40, kernels.capture if graphs else None)
    wish = PoolWish(num_pages=64, host_bytes=8 * attention.spec.page_bytes)
    demands = Demands(wish, StepSize(8, 40), CONFIG.context_tokens)
    return start_on_device(TINY.model(attention), attention, demands, machine, LONE).runner


def crowd(rows: int = 3) -> list[Request]:
    """More and more rows decode, until all do."""
    ways = [Sampling(), SAMPLED, Sampling(logprobs=1)]
    return [
        Request(i, [7 + i] * (1 + 11 * i), list(range(1 + 15 * i, 16 + 15 * i)), way, 9)
        for i, way in enumerate(ways[:rows])
    ]


def outputs(requests: list[Request]) -> list[list[int]]:
    return [request.output for request in requests]


def test_tokens_are_those_of_the_hosts_runner(kernels: Emulation) -> None:
    """Both round to bfloat16, in different places; with these weights no token is so close
    to the next that it matters."""
    expected, found = crowd(), crowd()
    run(TINY.on_host(), expected, steps=8)
    run(start(kernels, graphs=False), found, steps=8)
    assert outputs(found) == outputs(expected)


def test_a_replayed_graph_gives_the_tokens_of_computed_steps(kernels: Emulation) -> None:
    """A capture refuses whatever waits for the device, and a replay runs no Python."""
    expected, found, ahead = crowd(), crowd(), crowd()
    run(start(kernels, graphs=False), expected, steps=12)
    graphed = start(kernels, graphs=True)
    kernels.launches.clear()
    run(graphed, found, steps=12)
    assert len(kernels.launches) == 3 * CONFIG.num_layers  # of the steps that had chunks
    run(start(kernels, graphs=True), ahead, steps=12, ahead=2)
    assert outputs(found) == outputs(expected) == outputs(ahead)
    assert len(found[0].output) == 12


def test_pages_go_to_the_host_and_come_back_elsewhere(kernels: Emulation) -> None:
    swapped, stayed = crowd(1)[0], crowd(1)[0]
    runner = start(kernels, graphs=True)
    run(runner, [swapped], steps=6)
    runner.step(StepBatch([], swap_out=[(1, 5), (2, 6)]))
    runner._attention._pool[1:16].fill_(torch.nan)
    swapped.pages = [40, 41, 42, 43]
    row = swapped.row()
    back = StepBatch([row], swap_in=[(5, 40), (6, 41)])
    swapped.took(row, runner.step(back).rows[row.request])
    run(runner, [swapped], steps=2)
    run(start(kernels, graphs=True), [stayed], steps=9)
    assert swapped.output == stayed.output
