"""Penalties count a request's own output also after it gave way, on a decoder."""

import pytest

from models.batch import Sampling
from models.load import Loaded, LoadOptions, load
from schedulers.interface import Mode
from service.messages import Submit
from tests.cores import Answers, make_core, make_submit, run
from tests.strategies import strategy
from tests.tiny_models import saved, tiny_model

PAGE_SIZE = 4
HOST_PAGES = 12
PENALTIES = {
    "repetition": Sampling(repetition_penalty=1.5),
    "frequency": Sampling(frequency_penalty=2.0),
    "presence": Sampling(presence_penalty=2.0),
}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = saved(tiny_model("llama"), tmp_path_factory.mktemp("models") / "llama")
    options = LoadOptions(
        str(folder), "fp32", "reference", PAGE_SIZE, num_pages=64, host_bytes=2**20
    )
    return load(options)


def submits(sampling: Sampling) -> list[Submit]:
    return [
        make_submit(id, prompt=range(id, id + 6), max_tokens=18, sampling=sampling)
        for id in (11, 21, 31)
    ]


def answered(decoder: Loaded, asked: list[Submit], pages: int, mode: Mode) -> Answers:
    core = make_core(
        pages,
        PAGE_SIZE,
        host=HOST_PAGES,
        rows=3,
        budget=32,
        scheduler=strategy(f"fcfs {mode.value}"),
    )
    for submit in asked:
        core.submit(submit)
    return run(core, decoder.runner)


def alone(decoder: Loaded, sampling: Sampling) -> dict[int, list[int]]:
    """What each of `submits` says when it is alone and has pages enough."""
    asked = submits(sampling)
    return {s.id: answered(decoder, [s], 20, Mode.RECOMPUTE).tokens[s.id] for s in asked}


@pytest.mark.parametrize("penalty", PENALTIES)
def test_penalties_still_count_the_output_after_a_preemption(
    decoder: Loaded, penalty: str
) -> None:
    expected = alone(decoder, PENALTIES[penalty])
    assert expected != alone(decoder, Sampling()), "the penalty changes nothing"
    for mode in Mode:
        crowded = answered(decoder, submits(PENALTIES[penalty]), 9, mode)
        assert crowded.tokens == expected
        pauses = [pause for id in expected for pause in crowded.receipt(id).pauses]
        late = [pause for pause in pauses if pause.pages > 2]
        assert late, "nobody gave way after several tokens of output"
        assert {pause.mode for pause in late} == {mode.value}
