"""What the engine said of a request and its call has not taken yet, in arrays."""

from array import array

from service.messages import RequestEvent
from service.outbox import merge_events
from service.packing import count, take

TOKEN_BYTES = 4


class Unread:
    """News merge until they are taken, in pieces small enough not to hold up others."""

    def __init__(self) -> None:
        self.bytes = 0
        """But for what is small however long the answer is."""
        self._event: RequestEvent | None = None
        self._tokens = array("i")  # those of the event, once it was merged

    def __bool__(self) -> bool:
        return self._event is not None

    def add(self, event: RequestEvent) -> None:
        """The event belongs to this from now on."""
        self.bytes += _size(event)
        if self._event is None:
            self._event = event
            return
        for news in (self._event, event):
            self._tokens.extend(news.tokens)
            news.tokens = []
        self._event = merge_events(self._event, event)

    def take(self, tokens: int) -> RequestEvent:
        """At most so many tokens, of the prompt or of the output, oldest first; the end comes
        with the last of them."""
        event = self._event
        assert event is not None, "there is something to take"
        if len(event.tokens) > tokens:
            self._tokens.extend(event.tokens)
            event.tokens = []
        if event.prompt_logprobs and count(event.prompt_logprobs) > tokens:
            piece = _beginning(event)
            piece.prompt_logprobs = take(event.prompt_logprobs, tokens)
        elif len(self._tokens) > tokens:
            piece = _beginning(event)
            piece.prompt_logprobs, event.prompt_logprobs = event.prompt_logprobs, bytearray()
            piece.tokens = self._tokens[:tokens].tolist()
            piece.logprobs = take(event.logprobs, tokens)
            del self._tokens[:tokens]
        else:
            piece, self._event = event, None
            piece.tokens += self._tokens
            del self._tokens[:]
        self.bytes -= _size(piece)
        return piece

    def drop(self) -> None:
        """Drop what is not taken yet."""
        self.bytes, self._event, self._tokens = 0, None, array("i")


def _size(event: RequestEvent) -> int:
    return TOKEN_BYTES * len(event.tokens) + len(event.logprobs) + len(event.prompt_logprobs)


def _beginning(event: RequestEvent) -> RequestEvent:
    """A piece that goes before the rest of an event."""
    piece = RequestEvent(
        event.id, admitted=event.admitted, paused=event.paused, resumed_s=event.resumed_s
    )
    event.paused, event.resumed_s = [], []
    return piece
