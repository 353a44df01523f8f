"""Answers Tokenize and Detokenize: with threads and places of their own, so that they take
none from requests that wait, and under the same bounds."""

from protos.walkway.v1 import inference_pb2 as pb
from service.admission import Admission
from service.errors import InvalidArgument, TooLarge, Violation
from service.field_rules import check_chat, check_ids
from service.fields import Fields
from service.messages import Ready
from service.prompts import chat_messages, prompt_bytes
from service.requests import skips_special_tokens
from service.tokenising import BYTES_A_TOKEN, Tokenising


class TokenQueries:
    """`max_bytes` is the largest answer."""

    def __init__(self, admission: Admission, max_bytes: int) -> None:
        self._admission = admission
        self._max_bytes = max_bytes

    async def tokenize(
        self, request: pb.TokenizeRequest, ready: Ready, tokenising: Tokenising
    ) -> pb.TokenizeResponse:
        """What Generate would compute. Raises ServiceError."""
        kind, context = request.WhichOneof("prompt"), ready.context_tokens
        if kind is None:
            raise InvalidArgument([Violation("prompt", "neither text nor chat is set")])
        if kind == "chat":
            fields = Fields()
            check_chat(fields, request.chat)
            fields.settle()
        with self._admission.enter(prompt_bytes(request)):
            if kind == "chat":
                ids = await tokenising.chat(chat_messages(request.chat), context)
            else:
                ids = await tokenising.text(request.text, context)
        answer = pb.TokenizeResponse(token_ids=ids)
        self._check_size(answer)
        return answer

    async def detokenize(
        self, request: pb.DetokenizeRequest, ready: Ready, tokenising: Tokenising
    ) -> pb.DetokenizeResponse:
        """The text of token ids. Raises ServiceError."""
        fields = Fields()
        check_ids(fields, "token_ids", request.token_ids, ready)
        fields.settle()
        with self._admission.enter(BYTES_A_TOKEN * len(request.token_ids)):
            skip = skips_special_tokens(request)
            answer = pb.DetokenizeResponse(
                text=await tokenising.decode(request.token_ids, skip)
            )
        self._check_size(answer)
        return answer

    def _check_size(self, answer: pb.TokenizeResponse | pb.DetokenizeResponse) -> None:
        if (size := answer.ByteSize()) > self._max_bytes:
            raise TooLarge(f"the answer has {size} bytes, the limit is {self._max_bytes}")
