"""The least time of the machine that a request can cost, on any schedule.

Its prefill, in as few chunks as possible, and its decode steps, at the prices of a tariff.
Those leading blocks of its prompt that an earlier arrival names too are free: the earlier
request has to wait for them in its own window. A page counts for a
request by 1 / (requests that name its block). Nothing is forgotten, swapped or recomputed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.simulation.demand import Load
from bench.simulation.fluid import Floats
from bench.simulation.mooncake import BLOCK_TOKENS
from bench.simulation.profile import Profile
from bench.simulation.tariff import Tariff


@dataclass(frozen=True, slots=True)
class Needs:
    """What each request has computed at least, an element a request: a prefill of `prefill`
    tokens after `cached` ones, then `decodes` steps on a prompt of `prompt` tokens. `held` are
    prompt tokens in the pool, as far as they are its own."""

    prompt: Floats
    cached: Floats
    prefill: Floats
    decodes: Floats
    held: Floats

    def without_the_last_step(self, profile: Profile) -> "Needs":
        """What is to be computed before the last step begins: who makes it so far by its
        deadline is answered."""
        chunk = np.where(self.decodes > 0, 0.0, profile.max_step_tokens)
        return Needs(
            self.prompt,
            self.cached,
            np.maximum(0.0, self.prefill - chunk),
            np.maximum(0.0, self.decodes - 1),
            np.maximum(0.0, self.held - np.minimum(self.prefill, chunk)),
        )


def needs(load: Load, profile: Profile) -> Needs:
    """Of each request of a load."""
    arrivals = [demand.arrival for demand in load.demands]
    prompt = np.array([float(a.prompt_tokens) for a in arrivals])
    output = np.array([float(a.output_tokens) for a in arrivals])
    blocks = [a.blocks[: -(-a.prompt_tokens // BLOCK_TOKENS)] for a in arrivals]
    cached = np.minimum(_seen_before(blocks) * float(BLOCK_TOKENS), prompt - 1)
    return Needs(prompt, cached, prompt - cached, output - 1, _held(blocks, prompt))


def _seen_before(blocks: Sequence[Sequence[int]]) -> Floats:
    """How many blocks each begins with that an earlier one names at the same place."""
    seen: set[tuple[int, int]] = set()
    found = []
    for names in blocks:
        places = list(enumerate(names))
        count = next((i for i, place in enumerate(places) if place not in seen), len(places))
        found.append(float(count))
        seen.update(places)
    return np.array(found)


def _held(blocks: Sequence[Sequence[int]], prompt: Floats) -> Floats:
    sharers = Counter(place for names in blocks for place in enumerate(names))
    found = prompt.copy()
    for index, names in enumerate(blocks):
        for number, name in enumerate(names):
            tokens = min(BLOCK_TOKENS, prompt[index] - number * BLOCK_TOKENS)
            found[index] -= tokens * (1 - 1 / sharers[number, name])
    return found


def alone_s(needs: Needs, profile: Profile) -> Floats:
    """How long each takes at least, even with the machine to itself."""
    costs = profile.costs
    decode_s = costs.fixed_s + max(costs.weights_s, costs.row_s) + costs.link_token_s
    context_s = _context(needs) * costs.context_token_s
    found: Floats = prefill_alone_s(needs, profile) + needs.decodes * decode_s + context_s
    return found


def prefill_alone_s(needs: Needs, profile: Profile) -> Floats:
    """Of that, the prefill."""
    costs = profile.costs
    chunks = np.ceil(needs.prefill / profile.max_step_tokens)
    arithmetic_s = needs.prefill * min(costs.token_s, costs.row_s)
    computing_s = np.maximum(chunks * costs.weights_s, arithmetic_s)
    sent_s = needs.prefill * costs.link_token_s
    found: Floats = chunks * costs.fixed_s + computing_s + sent_s + _pairs_s(needs, profile)
    return found


def least_work_s(needs: Needs, step_s: Floats, profile: Profile, tariff: Tariff) -> Floats:
    """What each costs at least, when its decode steps take `step_s` on average at most."""
    context_token_s = profile.costs.context_token_s
    # Of what its decode rows weigh, the first is the least.
    weight_s = tariff.row_s + (needs.held + 1) * context_token_s
    found: Floats = needs.prefill * tariff.token_s + _pairs_s(needs, profile)
    found += _context(needs) * context_token_s
    return found + needs.decodes * weight_s * tariff.rate(step_s)


def _pairs_s(needs: Needs, profile: Profile) -> Floats:
    pairs = needs.prefill * needs.cached + needs.prefill * (needs.prefill + 1) / 2
    found: Floats = pairs * min(profile.costs.pair_s, profile.costs.context_token_s)
    return found


def _context(needs: Needs) -> Floats:
    found: Floats = needs.decodes * needs.prompt + needs.decodes * (needs.decodes + 1) / 2
    return found
