"""Sampling on the device: what the CPU draws, without waiting, in one copy."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from models import device_sampling
from models.batch import IN_FLIGHT, RequestId, Row, RowResult, Sampling
from models.device_edits import DeviceEdits
from models.device_previous import Previous
from models.device_sampling import draw, prompt_logprobs
from models.philox import uniform
from models.sampling import GREEDY_BELOW, UndrawableError, choose
from models.sampling import prompt_logprobs as cpu_prompt_logprobs

VOCAB = 1003


def make_row(sampling: Sampling, prompt=(1,), output=(), request=1) -> Row:
    known = [*prompt, *output]
    return Row(
        request=RequestId(request),
        tokens=known[-1:],
        start=len(known) - 1,
        pages=[1],
        samples=True,
        sampling=sampling,
        prompt=list(prompt),
        output=list(output),
    )


def make_logits(rows: int, seed: int, spread=3.0, vocab=VOCAB, ties=False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(rows, vocab, generator=generator)
    return logits.round(decimals=1) if ties else logits


def results_of(logits, rows, previous=None) -> list[RowResult]:
    return draw(logits, rows, previous).fetch()()


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1e-4, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 400, VOCAB]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.3, 1e-9]),
    min_p=st.sampled_from([0.0, 0.05, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 1e-40]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    presence_penalty=st.sampled_from([0.0, -0.2]),
    seed=st.integers(0, 2**64 - 1),
    logit_bias=st.sampled_from([(), ((3, 2.0), (9, -100.0))]),
    min_tokens=st.sampled_from([0, 4]),
    stop_ids=st.sampled_from([(), (0, 5)]),
    logprobs=st.sampled_from([None, 0, 5]),
)
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=8)
ROWS = st.builds(make_row, SAMPLINGS, TOKENS, TOKENS)
SICK = st.sampled_from([None, None, None, None, "nan", "inf", "masked"])


def make_sick(logits: torch.Tensor, sickness: str | None) -> None:
    if sickness == "masked":
        logits.fill_(-math.inf)
    elif sickness:
        logits[VOCAB // 2] = float(sickness)


def near_the_edge(logits: torch.Tensor, row: Row, token: int, other: int) -> bool:
    """Whether rounding may decide between two tokens: with a draw, top-p and min-p that are
    the row's own up to 3 parts in a million, float64 gives the one and the other."""
    s = row.sampling
    at = uniform([s.seed], [len(row.output)])[0]
    if s.temperature < GREEDY_BELOW:
        return False
    nudges = (-3e-6, 0.0, 3e-6)
    drawn_by = set()
    for top_p in [s.top_p * (1 + d) for d in nudges] if s.top_p < 1 else [1.0]:
        for min_p in [s.min_p * (1 + d) for d in nudges]:
            nudged = dataclasses.replace(s, top_p=top_p, min_p=min_p)
            drawn_by |= tokens_near(logits, dataclasses.replace(row, sampling=nudged), at)
    return {token, other} <= drawn_by


def tokens_near(logits: torch.Tensor, row: Row, at: float) -> set[int]:
    """The tokens whose span of the distribution is within 3e-6 of the draw `at`."""
    weights = kept_weights(logits.numpy(), row)
    ends = np.cumsum(weights) / weights.sum()
    begins = ends - weights / weights.sum()
    near = (weights > 0) & (begins - 3e-6 <= at) & (at <= ends + 3e-6)
    return set(np.flatnonzero(near).tolist())


def kept_weights(raw: np.ndarray, row: Row) -> np.ndarray:
    """The filtered distribution in float64, up to a factor, by sorting everything."""
    s, logits = row.sampling, raw.astype(np.float64)
    for token, bias in s.logit_bias:
        logits[token] += bias
    if s.repetition_penalty != 1:
        penalty = np.float64(np.float32(s.repetition_penalty))
        for token in {*row.prompt, *row.output}:
            x = logits[token]
            logits[token] = min(x / penalty, 3.4028234663852886e38) if x > 0 else x * penalty
    for token in set(row.output):
        count = row.output.count(token)
        logits[token] -= s.frequency_penalty * count + s.presence_penalty
    if len(row.output) < s.min_tokens:
        logits[list(s.stop_ids)] = -math.inf
    weights = np.exp((logits - logits.max()) / s.temperature)
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    weights[order[s.top_k or None :]] = 0
    mass = np.cumsum(weights[order])
    weights[order[int(np.searchsorted(mass, s.top_p * mass[-1])) + 1 :]] = 0
    weights[weights < s.min_p] = 0
    return weights


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(ROWS, SICK), min_size=1, max_size=9),
    st.integers(0, 1000),
    st.sampled_from([0.1, 3.0, 30.0]),
    st.booleans(),
)
def test_the_device_draws_what_the_cpu_draws(cases, seed, spread, ties):
    rows = [row for row, _ in cases]
    logits = make_logits(len(rows), seed, spread, ties=ties)
    for line, (_, sickness) in zip(logits, cases, strict=True):
        make_sick(line, sickness)
    before = logits.clone()
    found = results_of(logits, rows)
    assert torch.equal(logits.view(torch.int32), before.view(torch.int32))
    for line, row, mine, cpu in zip(logits, rows, found, choose(logits, rows), strict=True):
        assert mine.error == cpu.error
        if mine.tokens != cpu.tokens:
            assert near_the_edge(line, row, mine.tokens[0], cpu.tokens[0])
        elif mine.logprobs:
            (one,), (two,) = mine.logprobs, cpu.logprobs
            assert (one.token, len(one.top)) == (two.token, len(two.top))
            assert [t for t, _ in one.top] == [t for t, _ in two.top]
            assert one.logprob == pytest.approx(two.logprob, abs=1e-5, rel=1e-6)
            assert [p for _, p in one.top] == pytest.approx(
                [p for _, p in two.top], abs=1e-5, rel=1e-6
            )


def test_hardly_a_draw_is_left_to_rounding():
    """4000 draws of all kinds; so the comparison above compares tokens."""
    kinds = [
        {},
        {"top_k": 40},
        {"top_p": 0.9},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.2},
    ]
    rows = [
        make_row(Sampling(temperature=1.0, seed=i, **kinds[i % 5]), prompt=(1, 5, 7))
        for i in range(2000)
    ]
    differing = 0
    for seed in range(2):
        logits = make_logits(len(rows), seed, vocab=500)
        pairs = zip(results_of(logits, rows), choose(logits, rows), strict=True)
        differing += sum(mine.tokens != cpu.tokens for mine, cpu in pairs)
    assert differing <= 2


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=9), st.integers(0, 1000), st.randoms())
def test_a_row_draws_the_same_bits_alone_and_in_any_batch(rows, seed, random):
    logits = make_logits(len(rows), seed)
    alone = [draw(logits[i : i + 1].clone(), [row]) for i, row in enumerate(rows)]
    order = random.sample(range(len(rows)), len(rows))
    together = draw(logits[order], [rows[i] for i in order])
    assert [together.fetch()()[order.index(i)] for i in range(len(rows))] == [
        one.fetch()()[0] for one in alone
    ]
    for place, i in enumerate(order):
        mine, width = alone[i].packed[0], alone[i].packed.shape[1]
        own = 3 if width > 2 else 2
        assert torch.equal(together.packed[place, :own], mine[:own])


@pytest.mark.parametrize("at_once", [1, 3 * 49152])
@pytest.mark.parametrize("threads", [1, 2])
def test_neither_threads_nor_how_many_rows_are_worked_on_at_once_change_a_bit(
    monkeypatch, at_once, threads
):
    logits = make_logits(4, seed=1, vocab=49152)
    rows = [
        make_row(Sampling(temperature=1.0, top_p=0.9, seed=s, top_k=s % 2 * 50, logprobs=2))
        for s in range(4)
    ]
    alone = [results_of(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    expected = prompt_logprobs(logits, [5, 6, 7, 8], 3)()
    before = torch.get_num_threads()
    monkeypatch.setattr(device_sampling, "AT_ONCE", at_once)
    torch.set_num_threads(threads)
    try:
        assert results_of(logits, rows) == alone
        assert prompt_logprobs(logits, [5, 6, 7, 8], 3)() == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("at", "token"), [(0.0, 3), (1 - 2.0**-53, 900)])
@pytest.mark.parametrize("between", [-60.0, -20.0, -1.0, 0.0])
def test_the_outermost_draws_are_of_tokens_with_weight(monkeypatch, at, token, between):
    monkeypatch.setattr(device_sampling, "uniform", lambda seeds, positions: np.array([at]))
    logits = torch.full((1, VOCAB), between)
    logits[0, [3, 900]] = 0.0
    logits[0, :3] = logits[0, 901:] = -math.inf
    assert draw(logits, [make_row(Sampling(temperature=1.0))]).tokens.tolist() == [token]


def test_zeros_of_either_sign_are_equals():
    logits = torch.tensor([[-0.0, 0.0, -0.0, 0.0]])
    ((one,),) = [r.logprobs for r in results_of(logits, [make_row(Sampling(logprobs=4))])]
    assert [token for token, _ in one.top] == [0, 1, 2, 3]


def test_a_mask_does_not_hide_that_the_raw_logits_are_faulty():
    rows = [make_row(Sampling(stop_ids=(0,), min_tokens=1, temperature=t)) for t in (0.0, 1.0)]
    logits = torch.tensor([[math.inf, 0.0]] * 2)
    expected = [RowResult(error="the logits reach inf")] * 2
    assert results_of(logits, rows) == choose(logits, rows) == expected


PENALTIES = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 5.0]),
    frequency_penalty=st.sampled_from([0.0, 2.0]),
    presence_penalty=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 99),
)
FEW = st.lists(st.integers(0, 7), max_size=4)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(PENALTIES, FEW, FEW, st.booleans()), min_size=1, max_size=6),
    st.integers(0, 99),
    st.randoms(),
)
def test_a_token_in_flight_counts_like_one_that_returned(cases, seed, random):
    """Few tokens, so that the one in flight is often among those known."""
    logits = make_logits(len(cases), seed, spread=1.0, vocab=8)
    tokens = [random.randrange(8) for _ in cases]
    order = random.sample(range(len(cases)), len(cases))
    previous = Previous(
        torch.tensor([tokens[i] for i in order]),
        {RequestId(i): order.index(i) for i in range(len(cases))},
    )
    resolved = [
        make_row(sampling, prompt, [*output, tokens[i]], request=i)
        for i, (sampling, prompt, output, _) in enumerate(cases)
    ]
    flying = [
        make_row(sampling, prompt, [*output, IN_FLIGHT if flies else tokens[i]], request=i)
        for i, (sampling, prompt, output, flies) in enumerate(cases)
    ]
    expected, found = draw(logits, resolved), draw(logits, flying, previous)
    assert torch.equal(found.packed, expected.packed)


def test_a_row_whose_token_in_flight_failed_harms_no_other():
    logits, penalty = torch.tensor([[1.0, 0.9]] * 2), Sampling(presence_penalty=1.0)
    rows = [make_row(penalty, output=[IN_FLIGHT], request=i) for i in (4, 5)]
    previous = Previous(torch.tensor([0, -1]), {RequestId(4): 0, RequestId(5): 1})
    assert draw(logits, rows, previous).tokens.tolist() == [1, 0]


def test_a_token_in_flight_that_nobody_drew_raises():
    row = make_row(Sampling(presence_penalty=1.0), output=[IN_FLIGHT], request=4)
    with pytest.raises(KeyError, match="request 4"):
        draw(torch.zeros(1, 2), [row])
    with pytest.raises(KeyError, match="4"):
        draw(torch.zeros(1, 2), [row], Previous(torch.tensor([0]), {}))


BIASED = st.builds(
    dataclasses.replace,
    PENALTIES,
    logit_bias=st.sampled_from([(), ((3, 1.5), (5, -2.0))]),
    logprobs=st.sampled_from([None, 1]),
)
TURNS = st.lists(st.lists(st.integers(0, 4), unique=True, min_size=1), max_size=9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(BIASED, FEW), min_size=5, max_size=5), TURNS, st.booleans())
def test_what_is_kept_between_steps_changes_no_bit(requests, turns, flies):
    """Requests come and go as when they are preempted; the token that a request draws may be
    told a step later. A row may fail in between."""
    edits, previous = DeviceEdits(), Previous(torch.zeros(0, dtype=torch.int64), {})
    outputs = [[] for _ in requests]
    for number, turn in enumerate(turns):
        rows = [make_row(*requests[i], outputs[i], request=i) for i in turn]
        for row in rows:
            row.prompt = requests[row.request][1]  # the request's own, as from the engine
            if flies and row.request in previous.places:
                row.output = [*row.output[:-1], IN_FLIGHT]
        logits = make_logits(len(rows), number, spread=1.0, vocab=8)
        if number == 3:  # a token that the model does not have: all begins anew
            with pytest.raises(IndexError):
                draw(
                    logits, [make_row(Sampling(presence_penalty=1.0), output=[9])], edits=edits
                )
        found = draw(logits, rows, previous, edits)
        assert torch.equal(found.packed, draw(logits, rows, previous).packed)
        previous = Previous(found.tokens, {row.request: at for at, row in enumerate(rows)})
        for i, token in zip(turn, found.tokens.tolist(), strict=True):
            outputs[i].append(token)


class Told(list):
    """Counts how often somebody reads all of it."""

    read = 0

    def __iter__(self):
        self.read += 1
        return super().__iter__()


def test_a_prompt_is_counted_once():
    prompt, edits = Told(range(8)), DeviceEdits()
    sampling = Sampling(repetition_penalty=1.5)
    for count in range(5):
        row = make_row(sampling, [1], [2] * count)
        row.prompt = prompt
        draw(torch.zeros(1, 8), [row], edits=edits)
    assert prompt.read == 1


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(logit_bias=((8, 1.0),)),
        Sampling(stop_ids=(8,), min_tokens=9),
        Sampling(repetition_penalty=1.1),
    ],
)
def test_a_token_outside_the_vocabulary_raises_and_reaches_no_other_row(sampling):
    row = make_row(sampling, prompt=[0, 8])
    with pytest.raises(IndexError, match="token id 8 is outside the vocabulary of 8"):
        draw(torch.zeros(2, 8), [row, make_row(Sampling())])


def test_the_tokens_stay_on_the_device_with_minus_one_for_a_failed_row():
    logits = torch.tensor([[0.0, 2.0], [math.nan, 0.0], [5.0, 1.0]])
    rows = [make_row(Sampling(temperature=t, top_k=1)) for t in (0.0, 1.0, 1.0)]
    tokens = draw(logits, rows).tokens
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == [1, -1, 0]


def test_prompt_log_probabilities_are_those_of_the_cpu():
    logits = make_logits(5, seed=4, ties=True)
    targets = [3, 1, 4, 1, 5]
    found, expected = (
        prompt_logprobs(logits, targets, 3)(),
        cpu_prompt_logprobs(logits, targets, 3),
    )
    for mine, cpu in zip(found, expected, strict=True):
        assert mine.token == cpu.token
        assert mine.logprob == pytest.approx(cpu.logprob, abs=1e-5)
        assert [t for t, _ in mine.top] == [t for t, _ in cpu.top]
        assert [p for _, p in mine.top] == pytest.approx([p for _, p in cpu.top], abs=1e-5)
    logits[2, 1] = math.nan
    scores = prompt_logprobs(logits, targets, 0)
    with pytest.raises(UndrawableError, match="the logits reach nan"):
        scores()


class Watch(TorchDispatchMode):
    """Records operations and the size of what they make, and fails on those that would
    make the host wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in {
            "_local_scalar_dense", "item", "nonzero", "masked_select", "unique_dim", "_unique2",
            "equal", "is_nonzero", "repeat_interleave", "bincount", "tolist",
        }, name  # fmt: skip
        if name.startswith(("index", "_index_put")) and isinstance(args[1], list | tuple):
            assert all(i is None or i.dtype != torch.bool for i in args[1]), "a mask as index"
        out = func(*args, **(kwargs or {}))
        self.seen.append(name)
        sources = {_storage(arg) for arg in args if isinstance(arg, torch.Tensor)}
        if isinstance(out, torch.Tensor) and _storage(out) not in sources:
            self.largest = max(self.largest, out.numel())
        return out


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


EVERYTHING = Sampling(
    temperature=1.0, top_k=5, top_p=0.9, min_p=0.1, repetition_penalty=1.1,
    frequency_penalty=0.1, presence_penalty=0.1, logit_bias=((1, 1.0),), stop_ids=(2,),
    min_tokens=9, logprobs=2,
)  # fmt: skip
MIXED = [
    make_row(EVERYTHING, output=[3, IN_FLIGHT]),
    make_row(Sampling()),
    make_row(Sampling(temperature=1.0)),
    make_row(Sampling(temperature=1.0, top_p=0.9)),
    make_row(Sampling(logprobs=0)),
]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_nothing_in_a_draw_waits_for_the_device(device):
    """On "meta", which holds no values, whatever looks at one raises, and so does most of
    what mixes devices."""
    logits = make_logits(len(MIXED), seed=1, vocab=50).to(device)
    previous = Previous(torch.zeros(1, dtype=torch.int64).to(device), {RequestId(1): 0})
    with Watch():
        found = draw(logits, MIXED, previous)
    assert found.tokens.device.type == found.packed.device.type == device
    assert found.packed.shape == (len(MIXED), 2 + 1 + 2 * 2)


def test_fetching_is_one_copy_however_much_was_wanted():
    logits = make_logits(len(MIXED), seed=1)
    previous = Previous(torch.tensor([7]), {RequestId(1): 0})
    found = draw(logits, MIXED, previous)
    with Watch() as watch:
        results = found.fetch()
        results()
    assert [name for name in watch.seen if "copy" in name] == ["copy_"]
    with Watch() as watch:
        prompt_logprobs(logits, [1] * len(MIXED), 3)()
    assert watch.seen.count("copy_") == 1


def test_a_greedy_step_is_an_argmax_and_makes_nothing_of_the_size_of_the_logits():
    logits = torch.zeros(64, VOCAB, device="meta")
    with Watch() as watch:
        draw(logits, [make_row(Sampling(stop_ids=(1,)))] * 64)
    assert watch.seen.count("argmax") == 1
    assert len(watch.seen) <= 20
    assert watch.largest <= 2 * 64


def test_greedy_rows_do_not_pay_for_the_one_that_draws():
    logits, rows = torch.zeros(64, VOCAB), [make_row(Sampling())] * 63 + [MIXED[0]]
    previous = Previous(torch.tensor([7]), {RequestId(1): 0})
    with Watch() as watch:
        draw(logits, rows, previous)
    assert "topk" in watch.seen
    assert watch.largest <= VOCAB


def test_what_is_worked_on_at_once_is_bounded(monkeypatch):
    monkeypatch.setattr(device_sampling, "AT_ONCE", 3 * VOCAB + 7)
    kinds = [Sampling(temperature=1.0, top_p=0.9), Sampling(presence_penalty=1.0, logprobs=1)]
    rows = [make_row(kinds[i % 2], output=(3,)) for i in range(20)]
    logits, edits = torch.zeros(20, VOCAB), DeviceEdits()
    draw(logits, rows, edits=edits)  # makes the table of what they know, which stays
    with Watch() as watch:
        draw(logits, rows, edits=edits)
    assert watch.largest == 3 * VOCAB


def test_no_rows_are_no_results():
    assert results_of(torch.zeros(0, 8), []) == []
