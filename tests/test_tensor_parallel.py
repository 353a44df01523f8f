"""Layers split over processes: one rank's answers up to the order of sums, ranks that stay in
step, and an end that leaves nobody behind."""

import asyncio
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pydantic
import pytest
import torch
from torch import Tensor

from memory.attention.interface import KVSpec
from memory.attention.reference import ReferenceAttention
from models.batch import RequestId, Row, RowResult, Runner, Sampling, StepBatch
from models.errors import DeviceLost, ModelError
from models.hf_config import from_hf
from models.layers import LayerReader
from models.linear import cpu_kernel
from models.llama import Llama
from models.load import LoadOptions, load
from models.rank_leader import Leader, LeadingAttention, LeadingModel
from models.rank_messages import Copies, Message, Pass, packed, unpacked
from models.rank_processes import RankProcesses
from models.ranks import Ranks, load_ranks
from models.shard import Shard
from models.step_inputs import step_inputs
from models.weights import SafetensorsFolder
from service.build import build
from service.settings import Engine, Memory, Model, SchedulerChoice, Settings
from tests import rank_mains
from tests.cores import make_submit
from tests.test_supervisor import Front, alive, dies, engine_pid, supervised, until
from tests.tiny_models import KINDS, saved, tiny_model

SCORED = Sampling(logprobs=5)
PAGES, PAGE_SIZE = 64, 4
EIGHT_ON_FOUR = {"num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": True}
NINE_ON_THREE = {  # the default model's shape, but for layers and vocabulary
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "initializer_range": 0.1,
}


@dataclass
class Both:
    """One model twice: on one rank, and on several."""

    one: Runner
    group: Ranks
    lost: list[str]

    @property
    def many(self) -> Runner:
        return self.group.loaded.runner


def tiny(folder: Path, **changes: object) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "changed", ("Llama", changes))
        return saved(tiny_model("changed"), folder)


def options(folder: Path, **changes: object) -> LoadOptions:
    plain = LoadOptions(
        str(folder), "fp32", page_size=PAGE_SIZE, num_pages=PAGES, host_bytes=2**18
    )
    return replace(plain, **changes)


@contextmanager
def both(options: LoadOptions, size: int) -> Iterator[Both]:
    threads = torch.get_num_threads()
    lost: list[str] = []
    one = load(options).runner
    ranks = load_ranks(options, size, lost.append)
    try:
        own = max(1, (options.threads or threads) // size)
        assert torch.get_num_threads() == own, "ranks fight for cores"
        yield Both(one, ranks, lost)
        assert lost == []
    finally:
        ranks.close()
        torch.set_num_threads(threads)
    assert multiprocessing.active_children() == []


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with 4 KV heads and biases."""
    return tiny(tmp_path_factory.mktemp("four"), **EIGHT_ON_FOUR)


@pytest.fixture(scope="module")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("nine"), **NINE_ON_THREE)


two_ranks = pytest.mark.parametrize("ranks", [2], indirect=True)
three_ranks = pytest.mark.parametrize("ranks", [3], indirect=True)


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, 96, (length,), generator=generator).tolist()


def row(
    tokens: Sequence[int], start: int, pages: Sequence[int], id: int = 1, **other: object
) -> Row:
    """A row that draws with log-probabilities."""
    plain = Row(RequestId(id), tokens, start, pages, True, SCORED, tokens, ())
    return replace(plain, **other)


def step(runner: Runner, *rows: Row) -> list[RowResult]:
    results = runner.step(StepBatch(rows)).rows
    return [results[row.request] for row in rows]


def greedy(runner: Runner, ids: list[int], pages: Sequence[int], steps: int) -> list[RowResult]:
    """The prompt in one step, then token by token."""
    results = step(runner, row(ids, 0, pages))
    for at in range(len(ids), len(ids) + steps - 1):
        results += step(runner, row(results[-1].tokens, at, pages))
    return results


def agree(one: Sequence[RowResult], many: Sequence[RowResult], error: float = 1e-4) -> None:
    """Log-probabilities within `error`, and the same tokens up to ties: where the one rank's
    first two were closer than the error the tokens may differ, and what follows is another
    text."""
    for a, b in zip(one, many, strict=True):
        assert (a.error, b.error) == (None, None)
        (first, first_logprob), (_, second_logprob) = a.logprobs[0].top[:2]
        if a.tokens != b.tokens:
            assert first_logprob - second_logprob < error, "not a tie"
            return
        assert a.tokens == (first,)
        assert abs(a.logprobs[0].logprob - b.logprobs[0].logprob) < error
        tops = (dict(logprobs[0].top) for logprobs in (a.logprobs, b.logprobs))
        expected, found = (sorted(top.values()) for top in tops)
        torch.testing.assert_close(
            torch.tensor(found), torch.tensor(expected), atol=error, rtol=0
        )


class Summing:
    """Ranks that are threads of this process: sums in rank order."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=20)
        self._terms: list[Tensor] = [torch.empty(0)] * size

    def collective(self, rank: int) -> "SummingRank":
        return SummingRank(self, rank)

    def total(self, rank: int, x: Tensor) -> Tensor:
        self._terms[rank] = x.clone()
        self._barrier.wait()
        total = torch.stack(self._terms).sum(0)
        self._barrier.wait()
        return total


@dataclass
class SummingRank:
    all: Summing
    rank: int

    def all_reduce(self, x: Tensor) -> Tensor:
        return x.copy_(self.all.total(self.rank, x))


def hidden_of(folder: Path, shard: Shard, wanted: Tensor) -> Tensor:
    """Hidden states of a mixed step, and the pages it wrote."""
    config = from_hf(folder)
    dtype = torch.float32
    reader = LayerReader(config, SafetensorsFolder(folder), dtype, cpu_kernel(dtype)[0], shard)
    heads = shard.of(config.num_q_heads), shard.of(config.num_kv_heads)
    attention = ReferenceAttention(KVSpec(config.num_layers, *heads, config.head_dim, 4))
    attention.alloc_pool(20)
    model = Llama(config, reader.decoder(), attention, shard)
    rows = [row(prompt(9), 0, [1, 2, 3]), row([5], 0, [4]), row(prompt(6, 1), 0, [5, 6])]
    inputs = step_inputs(rows, 4)
    attention.plan(inputs.meta)
    return model.hidden(inputs.tokens, inputs.positions, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_s_shards_add_up_to_the_model(kind: str, tmp_path: Path) -> None:
    folder = saved(tiny_model(kind), tmp_path)
    wanted = torch.tensor([0, 4, 15])
    whole = hidden_of(folder, Shard(), wanted)
    summing, parts = Summing(2), dict[int, Tensor]()

    def run(rank: int) -> None:
        parts[rank] = hidden_of(folder, Shard(rank, 2, summing.collective(rank)), wanted)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(parts[0], parts[1]), "ranks that differ drift apart"
    torch.testing.assert_close(parts[0], whole, atol=1e-4, rtol=1e-4)


class Heard:
    """Stands for the other ranks."""

    def __init__(self, broken: bool = False) -> None:
        self.messages: list[Message] = []
        self._broken = broken

    def tell(self, message: Message) -> None:
        self.messages.append(message)
        if self._broken:
            raise RuntimeError("connection closed by peer")


def leading(four: Path, heard: Heard) -> tuple[LeadingModel, LeadingAttention]:
    config = from_hf(four)
    reader = LayerReader(
        config, SafetensorsFolder(four), torch.float32, cpu_kernel(torch.float32)[0]
    )
    attention = ReferenceAttention(KVSpec(config.num_layers, 8, 4, config.head_dim, PAGE_SIZE))
    attention.alloc_pool(8)
    leader = Leader(heard)
    led = LeadingAttention(attention, leader)
    return LeadingModel(Llama(config, reader.decoder(), attention), led, leader), led


def test_whatever_goes_wrong_after_the_ranks_were_told_is_final(four: Path) -> None:
    heard = Heard()
    model, attention = leading(four, heard)
    inputs = step_inputs([row([3, 4], 0, [1])], PAGE_SIZE)
    attention.plan(inputs.meta)
    wanted = torch.tensor([1])
    assert model.hidden(inputs.tokens, inputs.positions, wanted).shape == (1, 64)
    with pytest.raises(DeviceLost, match="IndexError"):
        model.hidden(inputs.tokens, inputs.positions, torch.tensor([2]))
    assert len(heard.messages) == 2
    for again in (
        lambda: model.hidden(inputs.tokens, inputs.positions, wanted),
        lambda: attention.copy_out([(1, 0)]),
    ):
        with pytest.raises(DeviceLost, match="out of step"):
            again()
    assert len(heard.messages) == 2, "the others were told more"


def test_a_broken_line_to_the_others_is_final(four: Path) -> None:
    model, attention = leading(four, Heard(broken=True))
    inputs = step_inputs([row([3, 4], 0, [1])], PAGE_SIZE)
    attention.plan(inputs.meta)
    with pytest.raises(DeviceLost, match="closed by peer"):
        model.hidden(inputs.tokens, inputs.positions, torch.tensor([1]))


@pytest.mark.parametrize("wanted", [[], [0, 11]])
def test_a_step_arrives_as_it_was_told(wanted: list[int]) -> None:
    rows = [row(prompt(9), 0, [3, 1, 2]), row([5], 8, [4, 7, 6]), row([1, 2], 3, [5, 8])]
    inputs = step_inputs(rows, PAGE_SIZE)
    told = Pass(inputs.meta, inputs.tokens, inputs.positions, torch.tensor(wanted).long())
    heard = unpacked(*packed(told))
    assert isinstance(heard, Pass)
    for a, b in zip(told.inputs, heard.inputs, strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype
    for name in StepMetaNames:
        a, b = getattr(told.meta, name), getattr(heard.meta, name)
        assert torch.equal(a, b) and a.dtype == b.dtype
    assert (heard.meta.num_decodes, heard.meta.graph_rows) == (1, None)


StepMetaNames = (
    "qo_indptr",
    "kv_indptr",
    "kv_indices",
    "last_page_len",
    "kv_lens",
    "slots",
)


@pytest.mark.parametrize("out", [True, False])
def test_copies_arrive_as_they_were_told(out: bool) -> None:
    told = Copies(out, ((3, 0), (1, 2)))
    assert unpacked(*packed(told)) == told


@pytest.mark.parametrize(
    ("shape", "size", "line"),
    [
        (EIGHT_ON_FOUR, 3, "engine.tensor_parallel = 3 .* 4 key-value heads"),
        ({"num_key_value_heads": 1}, 2, "engine.tensor_parallel = 2 .* 1 key-value heads"),
        ({"intermediate_size": 161}, 2, "engine.tensor_parallel = 2 .* 161 intermediate"),
    ],
)
def test_a_degree_that_does_not_divide_is_refused(
    shape: dict[str, object], size: int, line: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=line) as refused:
        load_ranks(options(tiny(tmp_path, **shape)), size, lambda line: None)
    assert "\n" not in str(refused.value)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ({"isolation": "inline"}, "isolation"),
        ({"steps_in_flight": 2}, "steps_in_flight"),
    ],
)
def test_settings_that_several_ranks_cannot_have_are_refused(
    engine: dict[str, object], why: str
) -> None:
    Engine(**engine)
    with pytest.raises(pydantic.ValidationError, match=why):
        Engine(tensor_parallel=2, **engine)


def test_the_toy_has_nothing_to_split() -> None:
    with pytest.raises(ModelError, match="tensor_parallel"):
        build(Settings(engine=Engine(tensor_parallel=2), model=Model(source="toy")))


def test_ranks_agree_on_the_least() -> None:
    lost: list[str] = []
    processes = RankProcesses(3, rank_mains.agreeing, (10, 7), lost.append)
    try:
        assert processes.agree((9, 9)) == (8, 5)
        processes.agree(())
        heard = [(processes.folder / str(rank)).read_text() for rank in (1, 2)]
        assert heard == ["(8, 5)"] * 2
    finally:
        processes.close()
    assert not processes.folder.exists()
    assert multiprocessing.active_children() == []
    assert lost == []


@pytest.mark.parametrize(
    ("main", "size", "line"),
    [
        (rank_mains.failing, 3, "rank 2: there is no model here"),
        (rank_mains.killed, 2, "rank 1: ended by SIGKILL"),
    ],
)
def test_a_rank_that_cannot_load_says_why(main: object, size: int, line: str) -> None:
    processes = RankProcesses(size, main, (), lambda line: None)
    try:
        with pytest.raises(ModelError) as failed:
            processes.agree(())
        assert str(failed.value) == line
    finally:
        processes.close()
    assert multiprocessing.active_children() == []


def test_a_rank_that_dies_while_serving_is_told_once() -> None:
    lost = queue.Queue[str]()
    processes = RankProcesses(2, rank_mains.agreeing, (5,), lost.put)
    try:
        processes.agree((5,))
        processes.agree(())
        processes.depend(heed_s=0.0)
        [rank] = multiprocessing.active_children()
        rank.kill()
        assert lost.get(timeout=5) == "rank 1: ended by SIGKILL"
        assert processes.lost(within_s=0) == "rank 1: ended by SIGKILL"
        with pytest.raises(ModelError, match="SIGKILL"):
            processes.depend(heed_s=0.0)
    finally:
        processes.close()
    assert lost.empty()


def test_a_rank_that_dies_during_the_start_is_told_only_where_nobody_heeds_it() -> None:
    lost = queue.Queue[str]()
    for heed_s in (60.0, 0.1):
        processes = RankProcesses(2, rank_mains.agreeing, (5,), lost.put)
        try:
            processes.agree((5,))
            processes.agree(())
            processes.depend(heed_s)
            [rank] = multiprocessing.active_children()
            rank.kill()
            if heed_s == 0.1:
                assert lost.get(timeout=5) == "rank 1: ended by SIGKILL"
            with pytest.raises(ModelError, match="SIGKILL"):
                processes.agree(())
        finally:
            processes.close()
        assert lost.empty()


STUCK = """
import os, sys
from models import ranks
from models.load import LoadOptions
from tests import rank_mains

def lost(why):
    print(why, flush=True)
    os._exit(7)

if __name__ == "__main__":
    ranks.START_HEED_S = 0.2
    ranks.follower_main = rank_mains.half_joined
    ranks.load_ranks(LoadOptions(sys.argv[1], "fp32", num_pages=8), 2, lost)
"""


def test_a_rank_that_ends_before_it_joined_does_not_keep_rank_0_waiting(four: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STUCK, str(four)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (7, "rank 1: exited with code 3\n")


def test_a_rank_that_fails_alone_ends_the_start_with_its_line(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.ranks.follower_main", rank_mains.failing_alone)
    with pytest.raises(ModelError, match="rank 1: no room for a step"):
        load_ranks(options(four), 2, lambda line: None)
    assert multiprocessing.active_children() == []


RANK_0 = """
import multiprocessing, sys
from models.rank_processes import RankProcesses
from tests import rank_mains

if __name__ == "__main__":
    processes = RankProcesses(2, rank_mains.agreeing, (5,), print)
    processes.agree((5,))
    processes.agree(())
    processes.depend(heed_s=0.0)
    [rank] = multiprocessing.active_children()
    print(rank.pid, processes.folder, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_no_rank_outlives_rank_0(killed: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RANK_0],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as rank_0:
        try:
            assert rank_0.stdout is not None
            pid, folder = rank_0.stdout.readline().split()
            assert alive(int(pid))
            if killed:
                rank_0.kill()
            rest, _ = rank_0.communicate("end\n", timeout=10)
            assert dies(int(pid), within_s=5)
            assert rest == "", "an end that was asked for is no loss"
            assert not Path(folder).exists()
        finally:
            rank_0.kill()


def test_a_rank_0_that_is_a_process_of_its_own_ends_at_once(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=rank_mains.rank_0, args=(notes,))
    process.start()
    process.join(10)
    try:
        assert process.exitcode == 0, "it waits for a rank that waits for it"
        pid, folder = notes.read_text().split()
        assert dies(int(pid), within_s=5)
        assert not Path(folder).exists()
    finally:
        process.kill()
        process.join()


def ranks_of(engine: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{engine}/task/{engine}/children").read_text().split()]


def meeting_places(folder: Path) -> list[Path]:
    return list(folder.glob("walkway-ranks-*"))


async def test_a_killed_rank_ends_the_engine_which_comes_back(
    four: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    front = Front()
    settings = Settings(
        engine=Engine(tensor_parallel=2, restart_backoff_s=0.02),
        model=Model(source=str(four), dtype="fp32"),
        memory=Memory(num_pages=PAGES, page_size=PAGE_SIZE),
    )
    async with supervised(front, build, settings) as (supervisor, _):
        supervisor.send(make_submit(1, prompt=prompt(12), max_tokens=6))
        await until(lambda: 1 in front.finish)
        first = engine_pid()
        [rank] = ranks_of(first)
        os.kill(rank, signal.SIGKILL)
        await until(lambda: front.down)
        assert "exited with code 1" in front.down[0][1]
        assert await asyncio.to_thread(dies, first, 5)
        await until(lambda: len(front.ready) == 2, 60)
        supervisor.send(make_submit(2, prompt=prompt(12), max_tokens=6))
        await until(lambda: 2 in front.finish)
        assert front.tokens[2] == front.tokens[1]
        [rank] = ranks_of(engine_pid())
        assert len(meeting_places(tmp_path)) == 1
    assert await asyncio.to_thread(dies, rank, 5)
    assert meeting_places(tmp_path) == []


async def test_a_strategy_that_plans_when_a_rank_is_lost_is_not_blamed(four: Path) -> None:
    front = Front()
    settings = Settings(
        engine=Engine(tensor_parallel=2, restart_backoff_s=0.02),
        model=Model(source=str(four), dtype="fp32"),
        memory=Memory(num_pages=PAGES, page_size=PAGE_SIZE),
        scheduler=SchedulerChoice(name="tests.misbehaving:LosesARank"),
    )
    async with supervised(front, build, settings) as (supervisor, _):
        supervisor.send(make_submit(1, prompt=prompt(12), tenant="trouble"))
        await until(lambda: front.down, 20)
        await until(lambda: len(front.ready) == 2, 60)
        assert [ready.scheduler for ready in front.ready] == [settings.scheduler.name] * 2


@pytest.mark.slow
def test_ranks_wait_for_rank_0_for_longer_than_for_each_other(
    four: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.ranks.follower_main", rank_mains.impatient)
    with both(options(four), 2) as found:
        time.sleep(1.5 * rank_mains.PATIENCE.total_seconds())
        ids = prompt(20)
        agree(*(greedy(runner, ids, range(1, 9), 2) for runner in (found.one, found.many)))


@pytest.mark.slow
def test_three_ranks_answer_as_one_on_the_default_model() -> None:
    plain = LoadOptions("default", "fp32", num_pages=PAGES)
    with both(plain, 3) as found:
        for seed in range(2):
            ids, pages = prompt(20 + seed, seed), range(1, 10)
            one, many = (greedy(r, ids, pages, 24) for r in (found.one, found.many))
            agree(one, many, error=1e-3)


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, four: Path, nine: Path) -> Iterator[Both]:
    """So many ranks, one after the other: a process is in one group at a time."""
    folder = {2: four, 3: nine}[request.param]
    with both(options(folder), request.param) as found:
        yield found


def test_threads_are_shared_by_the_ranks(four: Path) -> None:
    with both(options(four, threads=5), 2) as found:
        ids, pages = prompt(20), range(1, 9)
        agree(*(greedy(runner, ids, pages, 2) for runner in (found.one, found.many)))


@two_ranks
def test_two_ranks_answer_as_one(ranks: Both) -> None:
    for seed in range(3):
        ids, pages = prompt(30 + seed, seed), range(1, 20)
        one, many = (greedy(r, ids, pages, 12) for r in (ranks.one, ranks.many))
        agree(one, many)
    loaded = ranks.group.loaded
    assert (loaded.num_pages, loaded.batch_invariant) == (PAGES, False)
    assert "rank" in loaded.batch_why


@three_ranks
def test_three_ranks_answer_as_one_on_the_default_model_s_shape(ranks: Both) -> None:
    ids, pages = prompt(40), range(1, 20)
    one, many = (greedy(r, ids, pages, 12) for r in (ranks.one, ranks.many))
    agree(one, many)


@two_ranks
def test_mixed_steps_chunks_and_scored_prompts_stay_in_step(ranks: Both) -> None:
    ids, scored = prompt(21), replace(SCORED, prompt_logprobs=2)
    found = []
    for runner in (ranks.one, ranks.many):
        chunk = row(ids[:10], 0, range(1, 9), samples=False, prompt=ids)
        assert step(runner, chunk) == [RowResult()]  # nothing is wanted: fewer sums
        rest = row(ids[10:], 10, range(1, 9), prompt=ids)
        own = row(ids, 0, range(9, 16), id=2, sampling=scored)
        middle = row(
            ids[:7], 0, range(16, 20), id=3, samples=False, sampling=scored, prompt=ids
        )
        found.append(step(runner, rest, own, middle, row([9], 0, [20], id=4)))
    one, many = found
    for a, b in zip(one, many, strict=True):
        assert len(a.prompt_logprobs) == len(b.prompt_logprobs)
        for x, y in zip(a.prompt_logprobs, b.prompt_logprobs, strict=True):
            assert abs(x.logprob - y.logprob) < 1e-4
    assert [len(a.prompt_logprobs) for a in one] == [0, 20, 7, 0]
    agree([one[0], one[1], one[3]], [many[0], many[1], many[3]])


@two_ranks
def test_pages_that_were_swapped_come_back_on_every_rank(ranks: Both) -> None:
    ids = prompt(16)
    one, many = ranks.one, ranks.many
    expected = greedy(one, ids, range(1, 9), 2)
    first = step(many, row(ids, 0, range(1, 9)))
    many.step(StepBatch([], swap_out=[(1, 3), (2, 2), (3, 1), (4, 0)]))
    greedy(many, prompt(20, 5), range(1, 9), 1)  # over the pages that were saved
    back = StepBatch(
        [row(first[0].tokens, 16, [21, 22, 23, 24, 25])],
        swap_in=[(3, 21), (2, 22), (1, 23), (0, 24)],
    )
    agree(expected, [*first, *many.step(back).rows.values()])


@two_ranks
def test_what_is_judged_before_the_ranks_are_told_leaves_them_in_step(ranks: Both) -> None:
    many, ids = ranks.many, prompt(12)
    [bad, good] = step(many, row([7, 500], 0, [30], id=2), row(ids, 0, range(1, 9)))
    assert "500" in (bad.error or "")
    with pytest.raises(ValueError, match="page table"):
        step(many, row(ids, 0, [1, PAGES + 7, 3]))
    agree([good], step(many, row(ids, 0, range(1, 9))))
    agree([good], step(ranks.one, row(ids, 0, range(1, 9))))
