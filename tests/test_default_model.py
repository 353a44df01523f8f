"""The default model against transformers, float32, token for token.

transformers scores our own sequences (one forward pass a prompt): a token of ours that is
not its first choice counts as a difference unless its first two choices are closer than
1e-4. Since each token is judged after the same prefix, agreement everywhere means that both
would have generated the same text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import gguf
import numpy as np
import pytest
import torch

from models.batch import Sampling, TokenLogprob
from models.fetch import default_model
from models.gguf_weights import GgufWeights
from models.layers import Decoder, LayerReader
from models.load import Loaded, LoadOptions, load
from models.runner import TorchRunner
from models.tokenizer import load_tokenizer
from service.core import Core
from service.messages import Limits, Receipt, Submit
from service.packing import unpack
from tests.cores import make_core, run, step_once

pytestmark = pytest.mark.alone
TIE = 1e-4
TEXTS = (
    "The capital of France is",
    "Once upon a time there was a",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "1, 2, 3, 4, 5,",
    "Dear Sir or Madam,",
    "The quick brown fox",
    "In 1969, people first",
    "Photosynthesis is the process by which",
    "SELECT name, age FROM",
    "To be, or not to be:",
    "Ingredients: two eggs, a cup of flour,",
    "The derivative of x squared is",
    "My favourite colour is",
    "E = mc",
    "The rain in Spain",
    "A list of planets: Mercury, Venus,",
    "Roses are red,",
    "import numpy as np\n\ndef softmax(x):\n",
    "Die Hauptstadt von Deutschland ist",
)


@dataclass(frozen=True)
class Extent:
    """How much is compared: which prompts, and how many tokens of each answer."""

    which: range = range(20)
    tokens: int = 64


ALL = Extent()
PART = Extent(range(0, 20, 3), 18)  # prompts of 4 to 50 tokens; fills pages of each size
ALONE = range(0, 20, 4)
WHICH = range(3, 8)  # of 4 to 40 tokens


def in_part_and(whole: Extent, part: Extent) -> pytest.MarkDecorator:
    """The part always, the whole with `-m slow`."""
    every = pytest.param(whole, marks=pytest.mark.slow)
    return pytest.mark.parametrize("extent", [part, every], ids=["part", "whole"])


@cache
def prompts() -> list[list[int]]:
    """Of 5 to 50 tokens, so that rows differ and pages fill at different steps."""
    tokenizer = load_tokenizer("default")
    ids = [tokenizer.encode(text) for text in TEXTS]
    return [(own * 8)[: 5 + 5 * (i % 10)] if i % 2 else own for i, own in enumerate(ids)]


@cache
def oracle() -> torch.nn.Module:
    """transformers' own reading of the same GGUF file."""
    from transformers import AutoModelForCausalLM

    path, memmap = default_model(), np.memmap
    with pytest.MonkeyPatch.context() as patch:
        # It slices the file a million times, and a slice of this class costs most of that.
        patch.setattr(np, "memmap", lambda *where, **how: np.asarray(memmap(*where, **how)))
        # It opens the file twice and lists the names again for each of 397 modules.
        patch.setattr(gguf, "GGUFReader", cache(gguf.GGUFReader))
        patch.setattr(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map))
        return AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32
        ).eval()


@pytest.fixture(scope="module", autouse=True)
def _oracle_is_let_go() -> Iterator[None]:
    yield
    oracle.cache_clear()


_read = LayerReader.decoder
_held: dict[torch.dtype, Decoder] = {}


def weights(reader: LayerReader) -> Decoder:
    """One copy for all pools: it takes seconds and 700 MB."""
    if not isinstance(reader.source, GgufWeights):  # one that only notes the tensors' names
        return _read(reader)
    if reader.dtype not in _held:
        _held[reader.dtype] = _read(reader)
    return _held[reader.dtype]


@cache
def runner(dtype: str = "fp32", attention: str = "cpu", page_size: int = 16) -> Loaded:
    """The model over a pool of 2048 tokens."""
    options = LoadOptions(
        "default", dtype, attention, page_size, num_pages=2048 // page_size, host_bytes=2**25
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LayerReader, "decoder", weights)
        return load(options)


@dataclass(frozen=True)
class Setting:
    """What a run may differ in from batch 20, page 16, chunk 512, cold cache, `cpu`."""

    dtype: str = "fp32"
    attention: str = "cpu"
    page_size: int = 16
    chunk: int = 512
    pages: int | None = None

    def engine(self) -> tuple[Core, TorchRunner]:
        """A core with a cold cache of its own."""
        loaded = runner(self.dtype, self.attention, self.page_size)
        pages = self.pages or loaded.num_pages - 1
        core = make_core(pages, self.page_size, rows=20, budget=self.chunk, audit=None)
        return core, loaded.runner


def submit(id: int, prompt: list[int], tokens: int, sampling: Sampling = Sampling()) -> Submit:  # noqa: B008
    return Submit(id, prompt, sampling, Limits(tokens), arrival_s=0.0)


def greedy(
    setting: Setting, extent: Extent, rounds: int = 1
) -> tuple[list[list[int]], list[Receipt]]:
    """What the engine says to each prompt, all together (in the last of the rounds), and what
    it took."""
    core, model = setting.engine()
    for _ in range(rounds):
        for i in extent.which:
            core.submit(submit(i, prompts()[i], extent.tokens))
        answers = run(core, model, steps=5000)
    receipts = [answers.receipt(i) for i in extent.which]
    return [answers.tokens[i] for i in extent.which], receipts


@cache
def plain() -> list[list[int]]:
    """The answers that every other setting must repeat."""
    return greedy(Setting(), ALL)[0]


def beginnings(extent: Extent) -> list[list[int]]:
    """Of the plain answers."""
    return [plain()[i][: extent.tokens] for i in extent.which]


def differences(which: range, outputs: list[list[int]]) -> list[str]:
    """Where transformers would have said something else."""
    found = []
    for i, output in zip(which, outputs, strict=True):
        ids = torch.tensor([prompts()[i] + output])
        with torch.inference_mode():
            logits = oracle()(ids, logits_to_keep=len(output) + 1).logits[0, :-1]
        best, second = logits.topk(2).values.T
        wrong = (logits.argmax(-1) != ids[0, -len(output) :]) & (best - second >= TIE)
        found += [f"prompt {i}, token {at}" for at in wrong.nonzero().flatten().tolist()]
    return found


def test_greedy_tokens_are_those_of_transformers() -> None:
    assert [len(output) for output in plain()] == [ALL.tokens] * 20
    assert differences(ALL.which, plain()) == []


@in_part_and(ALL, PART)
@pytest.mark.parametrize(
    "setting",
    [
        Setting(page_size=1),
        Setting(page_size=64),
        Setting(chunk=7),
        Setting(attention="reference"),
    ],
    ids=["page 1", "page 64", "chunk 7", "reference"],
)
def test_a_changed_setting_changes_no_token(setting: Setting, extent: Extent) -> None:
    outputs, _ = greedy(setting, extent)
    if outputs != beginnings(extent):
        assert differences(extent.which, outputs) == []


@in_part_and(ALL, PART)
def test_a_warm_cache_changes_no_token(extent: Extent) -> None:
    outputs, receipts = greedy(Setting(), extent, rounds=2)
    assert outputs == beginnings(extent)
    cached = [receipt.cached_tokens > 0 for receipt in receipts]
    assert cached == [len(prompts()[i]) > 16 for i in extent.which]


@in_part_and(Extent(ALONE), Extent(ALONE, PART.tokens))
def test_alone_a_prompt_gets_the_same_tokens(extent: Extent) -> None:
    one = [Extent(range(i, i + 1), extent.tokens) for i in extent.which]
    assert [greedy(Setting(), extent)[0][0] for extent in one] == beginnings(extent)


def test_preempted_requests_get_the_same_tokens() -> None:
    outputs, receipts = greedy(Setting(pages=10), PART)
    assert outputs == beginnings(PART)
    assert any(receipt.preemptions for receipt in receipts)


def said(
    core: Core,
    model: TorchRunner,
    which: range = WHICH,
    sampling: Sampling = Sampling(logprobs=3, prompt_logprobs=1),  # noqa: B008
) -> tuple[list[list[TokenLogprob]], list[Receipt]]:
    """Log-probabilities of 16 tokens and of the prompt, with alternatives: equal only when
    the logits behind them are equal to the bit. And what the answers took."""
    found: dict[int, list[TokenLogprob]] = {i: [] for i in which}
    receipts: dict[int, Receipt] = {}
    for i in which:
        core.submit(submit(i, prompts()[i], 16, sampling))
    while core.has_work:
        step_once(core, model)
        for event in core.take_events()[0]:
            found[event.id] += unpack(event.prompt_logprobs + event.logprobs)
            if event.receipt is not None:
                receipts[event.id] = event.receipt
    return [found[i] for i in which], [receipts[i] for i in which]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_logits_are_equal_to_the_bit_whatever_the_batch_did(dtype: str) -> None:
    """Batch, chunk, page size, preemption."""
    needs_batch_invariance(dtype)
    together, _ = said(*Setting(dtype).engine())
    assert said(*Setting(dtype, page_size=1, chunk=7).engine())[0] == together
    preempted, receipts = said(*Setting(dtype, pages=7).engine())
    assert preempted == together
    assert any(receipt.preemptions for receipt in receipts)
    assert said(*Setting(dtype).engine(), WHICH[-1:])[0] == together[-1:]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_logits_after_a_cached_prefix_are_equal_to_the_bit(dtype: str) -> None:
    """A request that wants its prompt scored never looks into the cache."""
    needs_batch_invariance(dtype)
    core, model = Setting(dtype).engine()
    cold, first = said(core, model, sampling=Sampling(logprobs=3))
    warm, second = said(core, model, sampling=Sampling(logprobs=3))
    assert warm == cold
    assert [receipt.cached_tokens for receipt in first] == [0] * len(WHICH)
    hits = [receipt.cached_tokens > 0 for receipt in second]
    assert hits == [len(prompts()[i]) > 16 for i in WHICH]
    assert any(hits)


def needs_batch_invariance(dtype: str) -> None:
    if not runner(dtype).batch_invariant:
        pytest.skip("the products of this CPU depend on the batch")
