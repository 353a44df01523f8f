"""Every (state, move) pair, and what a request remembers."""

import pytest

from service.request import TRANSITIONS, IllegalMove, Move, Request, State
from tests.cores import make_submit

WAYS = {
    State.WAITING: [],
    State.RUNNING: [Move.ADMIT],
    State.SWAPPED: [Move.ADMIT, Move.SWAP_OUT],
    State.DRAINING: [Move.ADMIT, Move.DRAIN],
    State.DONE: [Move.END],
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("move", Move)
def test_each_move_from_each_state_is_in_the_table_or_raises(state: State, move: Move) -> None:
    request = Request(make_submit(1), page_size=2)
    for step in WAYS[state]:
        request.move(step)
    assert request.state is state
    if (state, move) in TRANSITIONS:
        request.move(move)
        assert request.state is TRANSITIONS[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"request 1 cannot {move.value}"):
            request.move(move)
        assert request.state is state


def test_nothing_leaves_done() -> None:
    assert not [move for state, move in TRANSITIONS if state is State.DONE]


def test_tokens_computed_again_are_counted() -> None:
    request = Request(make_submit(1, prompt=range(10)), page_size=2)
    assert request.advance(6) == 0
    request.computed = 0
    assert request.advance(4) == 4
    assert request.advance(4) == 2
    assert request.recomputed_tokens == 6
