"""The messages of a stream, none of them larger than a reader's limit."""

from collections import deque
from collections.abc import Iterator

from protos.walkway.v1 import inference_pb2 as pb
from service.call import Call, Part
from service.packing import count, take
from service.replies import stream_message, summary
from service.requests import Answering


class Messages:
    """The messages of a stream, one after the other: deltas, as large as what waits and the
    limit make them, then the summary. None comes after the last; an answer that failed before
    its first message has none."""

    def __init__(self, call: Call, max_bytes: int) -> None:
        self._call = call
        self._max_bytes = max_bytes
        self._pieces: deque[pb.GenerateStreamResponse] = deque()
        self._begun = False
        self._over = False

    async def next(self) -> pb.GenerateStreamResponse | None:
        """Waits for news; does not wait to make a message larger."""
        if not self._pieces and not self._over:
            self._cut(await self._call.next())
        if self._pieces:
            self._begun = True
            return await self._joined()
        if self._over or (self._call.error is not None and not self._begun):
            return None
        self._over = True
        return pb.GenerateStreamResponse(summary=summary(self._call))

    async def _joined(self) -> pb.GenerateStreamResponse:
        message = self._pieces.popleft()
        texts, left = [message.text], self._max_bytes - message.ByteSize()
        while True:
            if not self._pieces:
                self._cut(await self._call.at_hand())
            if not self._pieces or self._pieces[0].ByteSize() > left:
                break
            piece = self._pieces.popleft()
            left -= piece.ByteSize()
            texts.append(piece.text)
            message.MergeFrom(piece)  # joins what is repeated, which the text is not
        if len(texts) > 1:
            message.text = "".join(texts)
        return message

    def _cut(self, part: Part | None) -> None:
        if part is not None:
            self._pieces.extend(deltas(part, self._call.answering, self._max_bytes))


def deltas(
    part: Part, answering: Answering, max_bytes: int
) -> Iterator[pb.GenerateStreamResponse]:
    """What is new, in as many messages as it takes."""
    message = stream_message(part, answering)
    if message.ByteSize() <= max_bytes:
        yield message
        return
    kinds = _kinds(part)
    for piece in kinds if len(kinds) > 1 else _halves(part):
        yield from deltas(piece, answering, max_bytes)


def _kinds(part: Part) -> list[Part]:
    """One part for each kind of news. Text comes before its tokens, so that a token never
    comes before its text."""
    kinds = (
        Part(prompt_logprobs=part.prompt_logprobs),
        Part(text=part.text),
        Part(tokens=part.tokens, logprobs=part.logprobs),
        Part(scheduling=part.scheduling),
    )
    return [kind for kind in kinds if kind]


def _halves(part: Part) -> tuple[Part, Part]:
    """Of news of one kind. They can be divided: one token fits any message."""
    text, tokens, events = part.text, part.tokens, part.scheduling
    scores, prompt_scores = bytearray(part.logprobs), bytearray(part.prompt_logprobs)
    return Part(
        text=text[: len(text) // 2],
        tokens=tokens[: len(tokens) // 2],
        logprobs=take(scores, len(tokens) // 2),
        prompt_logprobs=take(prompt_scores, count(prompt_scores) // 2),
        scheduling=events[: len(events) // 2],
    ), Part(
        text=text[len(text) // 2 :],
        tokens=tokens[len(tokens) // 2 :],
        logprobs=scores,
        prompt_logprobs=prompt_scores,
        scheduling=events[len(events) // 2 :],
    )
