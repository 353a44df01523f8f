"""The prompt of a message: how large it is, and its tokens."""

from protos.walkway.v1 import inference_pb2 as pb
from service.messages import Ready
from service.tokenising import BYTES_A_TOKEN, Message, Tokenising


def prompt_bytes(request: pb.GenerateRequest | pb.TokenizeRequest) -> int:
    """About what it takes of memory while it waits."""
    match request.WhichOneof("prompt"):
        case "text":
            return len(request.text)
        case "chat":
            return sum(len(message.content) for message in request.chat.messages)
        case "token_ids" if isinstance(request, pb.GenerateRequest):
            return BYTES_A_TOKEN * len(request.token_ids.ids)
        case _:
            return 0


async def prompt_tokens(
    request: pb.GenerateRequest, ready: Ready, tokenising: Tokenising
) -> list[int]:
    """The prompt's token ids. Raises ServiceError for what surely exceeds the context."""
    match request.WhichOneof("prompt"):
        case "token_ids":
            return list(request.token_ids.ids)
        case "chat":
            return await tokenising.chat(chat_messages(request.chat), ready.context_tokens)
        case _:
            return await tokenising.text(request.text, ready.context_tokens)


def chat_messages(chat: pb.Chat) -> list[Message]:
    """As templates take them."""
    return [{"role": message.role, "content": message.content} for message in chat.messages]
