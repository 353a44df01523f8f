"""The text of one request: from token ids to what may be sent, a token at a time."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.packing import count, take
from service.stops import StopMatcher

HELD_TOKENS = 16
"""So many tokens may wait for one character to be complete; UTF-8 needs four."""

_UNFINISHED = "\ufffd"


class Decoder(Protocol):
    """What is asked of a tokenizer. `decode` joins without cleaning up spaces; ids it does
    not know and, with `skip_special_tokens`, special tokens give nothing."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str: ...


class Detokenizer:
    """Gives the text of tokens as soon as no later token can change it.

    The pieces joined equal `decode` of all tokens, but for decoders that take characters
    back: sentencepiece's byte fallback turns a whole run of bytes into U+FFFD for one bad
    byte in it. Here the characters before that byte, and those after more than HELD_TOKENS
    bad ones, stand.

    A token is decoded behind the group of tokens that gave the last characters (so that
    a decoder which strips the first space does not strip this one) and together with those
    whose character is not complete: a few tokens, however long the text is. Trailing
    U+FFFD may be such a character and is held back; once more than HELD_TOKENS wait, all but
    the last possible beginning of a character is let go.
    """

    def __init__(self, decoder: Decoder, skip_special_tokens: bool) -> None:
        self._decoder = decoder
        self._skip_special_tokens = skip_special_tokens
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []
        self._given = 0  # characters of the pending tokens' text
        self._pending_text = ""
        self.unfinished = 0
        """The last so many tokens still have text to come."""

    def push(self, token: int) -> str:
        """Take one token; the text that is certain now and was not before."""
        before = self._pending_text
        self._pending.append(token)
        self._pending_text = self._behind_context(self._pending)
        self.unfinished += 1
        if self._pending_text == before and self._is_silent(token):
            self._pending.pop()
        certain = self._pending_text.rstrip(_UNFINISHED)
        text = self._give(certain)
        if len(certain) == len(self._pending_text):
            self._settle(len(self._pending))
        elif self.unfinished > HELD_TOKENS:
            text += self._let_go()
        return text

    def flush(self) -> str:
        """The rest, when no more tokens come."""
        text = self._give(self._pending_text)
        self._settle(len(self._pending))
        return text

    def _decode(self, tokens: Sequence[int]) -> str:
        return self._decoder.decode(tokens, skip_special_tokens=self._skip_special_tokens)

    def _behind_context(self, tokens: Sequence[int]) -> str:
        text = self._decode([*self._context, *tokens])
        if text.startswith(self._context_text):
            return text[len(self._context_text) :]
        return self._decode(tokens)  # the decoder took characters back

    def _is_silent(self, token: int) -> bool:
        """Never gives text, as a skipped special token. Once is not enough to tell: a first
        space may be stripped, and a second byte does not show in an unfinished character."""
        return not self._decode([token, token])

    def _give(self, text: str) -> str:
        fresh = text[self._given :]
        self._given = max(self._given, len(text))
        return fresh

    def _let_go(self) -> str:
        """Settle all but the shortest end that decodes by itself as it does in place: if
        it did not, the cut would be inside a character."""
        for cut in range(len(self._pending) - 1, 0, -1):
            head = self._behind_context(self._pending[:cut])
            if head + self._decode(self._pending[cut:]) == self._pending_text:
                break
        else:
            if len(self._pending) > HELD_TOKENS:
                return self.flush()
            self.unfinished = len(self._pending)  # silent tokens made it long
            return ""
        text, given_of_end = self._give(head), self._given - len(head)
        self._settle(cut)
        self._given = given_of_end
        return text

    def _settle(self, count: int) -> None:
        """The first `count` pending tokens' text is given; they are context now."""
        if count:
            self._context = self._pending[:count]
            self._context_text = self._decode(self._context)
        self._pending = self._pending[count:]
        self._pending_text = self._behind_context(self._pending) if self._pending else ""
        self._given = 0
        self.unfinished = len(self._pending)


@dataclass(frozen=True, slots=True)
class Delta:
    """What is released together. `logprobs`, packed, has one entry a token, or none at all."""

    text: str
    tokens: tuple[int, ...]
    logprobs: bytes | bytearray


class TextStream:
    """Text, ids and log-probabilities of one request, with its stop strings applied.

    A token is released once all its text is: it waits with an unfinished character and
    with what may become a stop string. The deltas joined do not depend on how tokens were
    grouped. On a match the text ends before the stop string (`include_stop`: after it), ids
    and log-probabilities end with the token that completed it, and what comes after is
    dropped and counted in `dropped`. Stop strings are looked for in the text as it is sent:
    a special token that is skipped cannot match.

    The token that made the engine stop is among the ids, as it is in the usage, but its
    text is left out unless `include_stop` (and then, as that of an end-of-sequence token,
    usually skipped as special).

    With `wants_text` false and no stop strings nothing is decoded and ids pass at once.
    """

    def __init__(
        self,
        decoder: Decoder,
        stops: Sequence[str] = (),
        *,
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        wants_text: bool = True,
    ) -> None:
        self.dropped = 0
        self._detokenizer = Detokenizer(decoder, skip_special_tokens)
        self._stops = StopMatcher(stops, include_stop)
        self._include_stop = include_stop
        self._passes_ids = not wants_text and not stops
        self._tokens: deque[int] = deque()
        self._logprobs = bytearray()
        self._ends: deque[int] = deque()  # where the first tokens' text ends
        self._characters = 0
        self._passed_on = 0

    @property
    def matched(self) -> str | None:
        """The stop string that was found."""
        return self._stops.matched

    def feed(
        self,
        tokens: Sequence[int],
        logprobs: bytes | bytearray = b"",
        stopped: bool = False,
    ) -> Delta:
        """Take the next tokens. `logprobs`, packed, has one entry a token, or none for the
        whole request. `stopped`: the engine ended the request because of the last token."""
        if logprobs and count(logprobs) != len(tokens):
            raise ValueError(f"{count(logprobs)} log-probabilities for {len(tokens)} tokens")
        if self._passes_ids:
            return Delta("", tuple(tokens), logprobs)
        text = ""
        if self.matched is None:
            self._logprobs += logprobs
        for place, token in enumerate(tokens):
            if self.matched is not None:
                self.dropped += len(tokens) - place
                break
            self._tokens.append(token)
            if self._include_stop or not stopped or place < len(tokens) - 1:
                text += self._pass_on(self._detokenizer.push(token))
        return self._release(text)

    def finish(self) -> Delta:
        """Everything still held, once no more tokens come; nothing after a match."""
        text = self._pass_on(self._detokenizer.flush()) if self.matched is None else ""
        if self.matched is None:
            text += self._stops.flush()
        return self._cut(text, len(self._tokens))

    def _pass_on(self, text: str) -> str:
        passed = self._stops.feed(text)
        self._characters += len(text)
        self._passed_on += len(passed)
        finished = len(self._tokens) - self._detokenizer.unfinished
        self._ends.extend([self._characters] * (finished - len(self._ends)))
        return passed

    def _release(self, text: str) -> Delta:
        if self.matched is not None:
            return self._cut(text, len(self._tokens))
        released = 0
        for end in self._ends:
            if end > self._passed_on:
                break
            released += 1
        return self._cut(text, released)

    def _cut(self, text: str, released: int) -> Delta:
        tokens = tuple(self._tokens.popleft() for _ in range(released))
        logprobs = take(self._logprobs, released) if self._logprobs else b""
        for _ in range(min(released, len(self._ends))):
            self._ends.popleft()
        return Delta(text, tokens, logprobs)
