"""Unary answers, which have to fit one message."""

from dataclasses import dataclass

from protos.walkway.v1 import inference_pb2 as pb
from service.call import Call, Part
from service.errors import TooLarge
from service.replies import logprobs, summary


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Bytes of the largest message at all, and of one of a stream."""

    largest: int
    of_stream: int


class WholeAnswer:
    """A unary answer in the making. It is encoded as it comes, so that its size is known and
    its end is no large piece of work. Raises TooLarge once it cannot be sent."""

    def __init__(self, call: Call, max_bytes: int) -> None:
        self._call = call
        self._max_bytes = max_bytes
        self._texts: list[str] = []
        self._encoded = bytearray()
        self._text_bytes = 0

    def add(self, part: Part) -> None:
        """What is new. Its encoding is joined to what came before: to append an encoded
        message is to append its repeated fields."""
        answering = self._call.answering
        if answering.text:
            self._texts.append(part.text)
            self._text_bytes += len(part.text.encode())
        self._encoded += pb.GenerateResponse(
            token_ids=part.tokens if answering.token_ids else (),
            logprobs=logprobs(part.logprobs),
            prompt_logprobs=logprobs(part.prompt_logprobs),
        ).SerializeToString()
        self._check(len(self._encoded) + self._text_bytes)

    def message(self) -> pb.GenerateResponse:
        """All of it."""
        answer = pb.GenerateResponse.FromString(bytes(self._encoded))
        answer.text = "".join(self._texts)
        answer.summary.CopyFrom(summary(self._call))
        self._check(answer.ByteSize())
        return answer

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(
                f"the answer has {size} bytes or more, the limit of server.max_message_bytes "
                f"is {self._max_bytes}; GenerateStream has none"
            )


def check_fits(request: pb.GenerateRequest, max_bytes: int) -> None:
    """Raises TooLarge where no answer would fit, as far as that is known before the prompt is
    tokenised."""
    if (least := _least_bytes(request)) > max_bytes:
        raise TooLarge(
            f"the answer would have {least} bytes or more, the limit of "
            f"server.max_message_bytes is {max_bytes}; GenerateStream has none"
        )


def _least_bytes(request: pb.GenerateRequest) -> int:
    output, stopping = request.output, request.stopping
    ends = stopping.stop_strings or stopping.stop_token_ids or stopping.HasField("max_time")
    runs_on = stopping.ignore_eos and not ends
    tokens = max(stopping.min_tokens, stopping.max_tokens if runs_on else 0)
    size = 0
    if output.HasField("logprobs"):
        size += tokens * _least_record(output.logprobs)
    if output.HasField("prompt_logprobs") and request.token_ids.ids:
        size += (len(request.token_ids.ids) - 1) * _least_record(output.prompt_logprobs)
    return size


def _least_record(alternatives: int) -> int:
    """Of a TokenLogprob: tag and length, and a number where it is not 0."""
    return 2 + 7 * alternatives
