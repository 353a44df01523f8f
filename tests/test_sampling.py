"""Sampling: the same token alone and in any batch, from the distribution asked for."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.batch import RequestId, Row, RowResult, Sampling
from models.philox import philox4x32, uniform
from models.sampling import Sampler, UndrawableError, _largest, choose, prompt_logprobs

VOCAB = 1003


def make_row(sampling: Sampling, prompt=(1,), output=()) -> Row:
    return Row(
        request=RequestId(1),
        tokens=[0],
        start=len(prompt) + len(output) - 1,
        pages=[1],
        samples=True,
        sampling=sampling,
        prompt=list(prompt),
        output=list(output),
    )


def token_of(logits: list[float], sampling: Sampling, prompt=(1,), output=()) -> int:
    (result,) = choose(torch.tensor([logits]), [make_row(sampling, prompt, output)])
    assert result.error is None
    (token,) = result.tokens
    return token


def tokens_of(logits: list[float], sampling: Sampling, draws: int = 300, **more) -> list[int]:
    """One token of each of many requests that differ in their seed."""
    rows = [make_row(dataclasses.replace(sampling, seed=seed), **more) for seed in range(draws)]
    return [r.tokens[0] for r in choose(torch.tensor(logits).expand(draws, -1), rows)]


def logs(*probabilities: float) -> list[float]:
    return np.log(np.array(probabilities)).tolist()


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000",
         "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
         "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
         "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)  # fmt: skip
def test_philox_gives_the_published_known_answers(counter, key, answer):
    words = [np.array([int(w, 16) for w in s.split()], np.uint64) for s in (counter, key)]
    assert [f"{w:08x}" for w in philox4x32(*words).tolist()] == answer.split()


def test_a_uniform_depends_on_all_bits_of_seed_and_position_and_on_no_neighbour():
    pairs = [(0, 0), (0, 1), (1, 0), (2**32, 0), (0, 2**32), (2**64 - 1, 2**64 - 1)]
    together = uniform(*zip(*pairs, strict=True)).tolist()
    assert len(set(together)) == len(pairs)
    assert together == [uniform([s], [p])[0] for s, p in pairs]
    first = (0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)  # of the first known answer
    assert together[0] == first / 2**53


def test_uniforms_fill_the_unit_interval_evenly():
    drawn = uniform(list(range(20_000)), [7] * 20_000)
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert ((counts - 400) ** 2 / 400).sum() < 99  # chi-square, 49 degrees: p = 3e-5


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 400]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.3]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
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


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=9), st.integers(0, 1000), st.randoms())
def test_a_row_draws_the_same_alone_and_in_any_batch(rows, seed, random):
    """Rows of 1003 floats begin at every alignment, and at another one when alone."""
    logits = 3 * torch.randn(len(rows), VOCAB, generator=torch.Generator().manual_seed(seed))
    alone = [choose(logits[i : i + 1].clone(), [row])[0] for i, row in enumerate(rows)]
    order = random.sample(range(len(rows)), len(rows))
    before = logits.clone()
    together = choose(logits[order], [rows[i] for i in order])
    assert [together[order.index(i)] for i in range(len(rows))] == alone
    assert torch.equal(logits, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_a_token(threads):
    logits = torch.randn(4, 49152, generator=torch.Generator().manual_seed(1))
    rows = [
        make_row(Sampling(temperature=1.0, top_p=0.9, seed=s, logprobs=2)) for s in range(4)
    ]
    before = torch.get_num_threads()
    expected = [choose(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    torch.set_num_threads(threads)
    try:
        assert choose(logits, rows) == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 8, 33])
def test_log_probabilities_have_the_same_bits_in_any_batch(rows, threads):
    logits = 3 * torch.randn(33, 49153, generator=torch.Generator().manual_seed(2))
    row = make_row(Sampling(logprobs=20))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        alone = [choose(logits[i : i + 1], [row])[0] for i in range(rows)]
        assert choose(logits[:rows], [row] * rows) == alone
        assert choose(logits, [row] * 33)[:rows] == alone
        scored = prompt_logprobs(logits[:rows], [r.tokens[0] for r in alone], 20)
        assert [(found,) for found in scored] == [r.logprobs for r in alone]
    finally:
        torch.set_num_threads(before)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(SAMPLINGS, st.lists(st.integers(0, 20), max_size=9)), min_size=4, max_size=4
    ),
    st.lists(st.lists(st.integers(0, 3), unique=True, min_size=1), max_size=9),
)
def test_what_is_kept_between_steps_changes_no_bit(requests, turns):
    """Requests come and go as when they are preempted."""
    sampler, outputs = Sampler(), [[] for _ in requests]
    for number, turn in enumerate(turns):
        rows = [make_row(requests[i][0], requests[i][1], outputs[i]) for i in turn]
        for i, row in zip(turn, rows, strict=True):
            row.request, row.prompt = RequestId(i), requests[i][1]
        logits = torch.randn(len(rows), VOCAB, generator=torch.Generator().manual_seed(number))
        logits[:, :20] += 3
        found = sampler.choose(logits, rows)
        assert found == choose(logits, rows)
        for i, result in zip(turn, found, strict=True):
            outputs[i] += result.tokens


class Told(list):
    """Counts how often somebody reads all of it."""

    read = 0

    def __iter__(self):
        self.read += 1
        return super().__iter__()


def test_a_prompt_and_a_bias_are_walked_once():
    prompt, bias, sampler = Told([1, 2]), Told([(3, 1.0), (4, 2.0)]), Sampler()
    sampling = Sampling(repetition_penalty=1.5, logit_bias=bias)
    for count in range(5):
        row = make_row(sampling, [1], [2] * count)
        row.prompt = prompt
        sampler.choose(torch.zeros(1, 8), [row])
    assert prompt.read == 1
    assert bias.read <= 1


@pytest.mark.parametrize("count", [1, 20, 255, 256, 600, 1003])
def test_the_largest_are_those_of_a_full_sort(count):
    values = np.round(np.random.default_rng(count).normal(size=VOCAB), 2).astype(np.float32)
    expected = sorted(range(VOCAB), key=lambda i: (-values[i], i))[:count]
    assert _largest(values, count).tolist() == sorted(expected)


def test_a_position_draws_anew_and_a_seed_repeats():
    logits, sampling = [0.0] * 50, Sampling(temperature=1.0, seed=11)
    drawn = [token_of(logits, sampling, output=[0] * n) for n in range(40)]
    assert len(set(drawn)) > 20
    assert drawn == [token_of(logits, sampling, output=[0] * n) for n in range(40)]


def test_tokens_follow_the_distribution():
    """2000 tokens in several blocks, of which 20 have nearly all the mass."""
    probabilities = np.full(2000, 1e-9)
    probabilities[::100] = np.arange(1, 21) / 210
    drawn = tokens_of(logs(*probabilities), Sampling(temperature=1.0), draws=4000)
    counts = np.bincount(drawn, minlength=2000)[::100]
    expected = 4000 * np.arange(1, 21) / 210
    assert counts.sum() == 4000
    assert ((counts - expected) ** 2 / expected).sum() < 52  # 19 degrees: p = 7e-5


def test_temperature_divides_the_logits():
    drawn = tokens_of([0.0, 1.0], Sampling(temperature=0.5), draws=4000)
    assert np.mean(drawn) == pytest.approx(1 / (1 + np.exp(-2)), abs=0.02)


def oracle(logits: np.ndarray, s: Sampling) -> set[int]:
    """The tokens that may be drawn, by sorting everything."""
    weights = np.exp((logits - logits.max()) / np.float32(s.temperature))
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    order = order[: s.top_k or None]
    mass = np.cumsum(weights[order], dtype=np.float64)
    order = order[: int(np.searchsorted(mass, s.top_p * mass[-1])) + 1]
    return {i for i in order if weights[i] >= np.float32(s.min_p)}


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.01, 1.0, 4.0, 12.0]),
    st.sampled_from([0, 1, 2, 7, 600]),
    st.sampled_from([1.0, 0.97, 0.8, 0.5, 1e-6]),
    st.sampled_from([0.0, 0.001, 0.2, 1.0]),
)
def test_filters_keep_what_a_full_sort_keeps(seed, spread, top_k, top_p, min_p):
    logits = np.random.default_rng(seed).normal(0, spread, VOCAB).astype(np.float32)
    logits = np.round(logits, 1)  # ties
    s = Sampling(temperature=0.9, top_k=top_k, top_p=top_p, min_p=min_p)
    drawn = set(tokens_of(logits.tolist(), s, draws=60))
    assert drawn <= oracle(logits, s)


def test_filters_keep_all_that_they_should():
    logits = logs(0.1, 0.3, 0.2, 0.3, 0.06, 0.04)
    cases = [
        (Sampling(temperature=1.0, top_k=3), {1, 2, 3}),
        (Sampling(temperature=1.0, top_p=0.85), {0, 1, 2, 3}),
        (Sampling(temperature=1.0, top_k=4, top_p=0.85), {1, 2, 3}),  # of the mass left
        (Sampling(temperature=1.0, min_p=0.3), {0, 1, 2, 3}),
        (Sampling(temperature=1.0, min_p=1.0), {1, 3}),
        (Sampling(temperature=1.0, top_p=1e-9), {1}),
        (Sampling(temperature=1.0, top_k=1), {1}),
    ]
    for sampling, kept in cases:
        assert set(tokens_of(logits, sampling)) == kept, sampling


def test_among_equals_the_lowest_id_goes_first():
    logits = [0.0, 5.0, 5.0, 5.0, 5.0]
    assert token_of(logits, Sampling()) == 1
    assert token_of(logits, Sampling(logprobs=0)) == 1
    assert set(tokens_of(logits, Sampling(temperature=1.0, top_k=2))) == {1, 2}
    assert set(tokens_of(logits, Sampling(temperature=1.0, top_p=0.7))) == {1, 2, 3}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_top_k_of_one_and_a_tiny_temperature_are_greedy(seed):
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(seed)).round(
        decimals=1
    )
    ways = [
        Sampling(),
        Sampling(temperature=1.0, top_k=1, seed=seed),
        Sampling(temperature=1e-4, top_p=0.5, seed=seed, top_k=1),
        Sampling(temperature=1e-30, seed=seed),
        Sampling(frequency_penalty=2.0, min_tokens=1),
    ]
    answers = [choose(logits, [make_row(way)] * 3) for way in ways]
    assert all(answer == answers[0] for answer in answers)


def test_logits_far_apart_at_a_low_temperature_draw_the_best():
    assert token_of([-3e38, 3e38, 0.0], Sampling(temperature=1e-4)) == 1


def test_a_bias_moves_a_token():
    assert token_of([0.0, 1.0, 0.0], Sampling(logit_bias=((2, 1.5),))) == 2
    assert token_of([0.0, 1.0, 0.0], Sampling(logit_bias=((1, -100.0),))) == 0


def test_frequency_and_presence_penalties_count_output_only():
    logits, prompt = [2.0, 1.5, 0.0], [0, 0, 0, 0]
    frequency, presence = Sampling(frequency_penalty=0.3), Sampling(presence_penalty=0.3)
    assert token_of(logits, frequency, prompt) == 0
    assert token_of(logits, presence, prompt) == 0
    assert token_of(logits, frequency, prompt, output=[0]) == 0
    assert token_of(logits, frequency, prompt, output=[0, 0]) == 1
    assert token_of(logits, presence, prompt, output=[0, 0, 0]) == 0
    assert token_of(logits, Sampling(presence_penalty=0.6), prompt, output=[0]) == 1
    assert token_of(logits, Sampling(presence_penalty=-0.6), prompt, output=[1]) == 1


def test_the_repetition_penalty_counts_prompt_and_output_once_each():
    logits = [2.0, 1.5, -0.1, -9.0]
    penalty = Sampling(repetition_penalty=1.3)
    assert token_of(logits, penalty, prompt=[3]) == 0
    assert token_of(logits, Sampling(repetition_penalty=1.4), prompt=[0]) == 1
    assert token_of(logits, Sampling(repetition_penalty=1.4), prompt=[3], output=[0]) == 1
    assert token_of(logits, penalty, prompt=[0, 0, 0], output=[0]) == 0
    assert token_of([-1.0, -1.1], Sampling(repetition_penalty=1.2), prompt=[0]) == 1


def test_penalties_come_before_temperature():
    """A bias of 1 at temperature 0.1 weighs e**10."""
    s = Sampling(temperature=0.1, logit_bias=((1, 1.0),))
    assert set(tokens_of([0.0, 0.0], s)) == {1}


def test_stop_ids_are_masked_until_min_tokens():
    logits = [1.0, 9.0, 8.0, 0.0]
    stops = Sampling(min_tokens=2, stop_ids=(1, 2))
    assert token_of(logits, stops) == 0
    assert token_of(logits, stops, output=[0]) == 0
    assert token_of(logits, stops, output=[0, 0]) == 1
    warm = dataclasses.replace(stops, temperature=5.0)
    assert set(tokens_of(logits, warm)) == {0, 3}


@pytest.mark.parametrize("wanted", [0, 1, 20])
def test_log_probabilities_are_those_of_the_raw_distribution(wanted):
    logits = 4 * torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(3))
    sampling = Sampling(
        temperature=0.5, top_k=3, logit_bias=((7, 50.0),), presence_penalty=1.0, logprobs=wanted
    )
    reference = torch.log_softmax(logits.double(), dim=1)
    for result, row in zip(
        choose(logits, [make_row(sampling, output=[7])] * 6), reference, strict=True
    ):
        ((token,), (own,)) = result.tokens, result.logprobs
        assert token == own.token == 7
        assert own.logprob == pytest.approx(row[7].item(), abs=2e-5)
        best = row.topk(wanted)
        assert [t for t, _ in own.top] == best.indices.tolist()
        assert [p for _, p in own.top] == pytest.approx(best.values.tolist(), abs=2e-5)


def test_prompt_log_probabilities_equal_those_of_output_tokens():
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(4))
    sampled = choose(logits, [make_row(Sampling(logprobs=3))] * 5)
    targets = [r.tokens[0] for r in sampled]
    assert prompt_logprobs(logits, targets, 3) == tuple(r.logprobs[0] for r in sampled)
    logits[2, 1] = float("nan")
    with pytest.raises(UndrawableError, match="nan"):
        prompt_logprobs(logits, targets, 0)


SICK = {
    "nan": lambda row: row.__setitem__(VOCAB // 2, float("nan")),
    "infinite": lambda row: row.__setitem__(0, float("inf")),
    "masked": lambda row: row.fill_(float("-inf")),
}


@pytest.mark.parametrize("sickness", SICK)
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.0, top_p=0.9), Sampling(logprobs=2)]
)
def test_a_sick_row_fails_alone(sickness, sampling):
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(5))
    rows = [make_row(sampling)] * 3
    healthy = choose(logits, rows)
    SICK[sickness](logits[1])
    first, sick, last = choose(logits, rows)
    assert [first, last] == [healthy[0], healthy[2]]
    assert sick.error
    assert sick.tokens == sick.logprobs == ()


@pytest.mark.parametrize("penalty", [1e-50, 1e-40, 1e-38])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_smallest_penalties_repeat_and_do_not_fail(penalty, temperature):
    sampling = Sampling(repetition_penalty=penalty, temperature=temperature, logprobs=1)
    row = make_row(sampling, prompt=(1, 2), output=(2, 3))
    result = choose(torch.tensor([[90.0, -5.0, 80.0, 0.0]]), [row])[0]
    assert result.tokens == (2,)
    assert result.logprobs[0].top[0][0] == 0


def test_a_row_whose_every_token_is_a_masked_stop_fails_alone():
    masked = make_row(Sampling(min_tokens=1, stop_ids=(0, 1)))
    failed, fine = choose(torch.zeros(2, 2), [masked, make_row(Sampling())])
    assert failed == RowResult(error="nothing left to draw from")
    assert fine == RowResult(tokens=(0,))


def test_a_greedy_step_is_one_call_of_the_argmax_it_was_given():
    calls = []

    def argmax(logits: Tensor) -> Tensor:
        calls.append(logits.shape)
        return logits.argmax(dim=1)

    logits = torch.tensor([[0.0, 2.0], [3.0, float("nan")]])
    fine, sick = choose(logits, [make_row(Sampling(stop_ids=(1,)))] * 2, argmax)
    assert calls == [(2, 2)]
    assert fine.tokens == (1,)
    assert sick.error == "the logits reach nan"


def test_no_rows_are_no_results():
    assert choose(torch.zeros(0, 8), []) == []
