"""What each field of a request may be. The comments of inference.proto say the same."""

from collections.abc import Sequence

from models.config import MAX_TEMPERATURE
from protos.walkway.v1 import inference_pb2 as pb
from service.fields import Fields
from service.messages import Ready

TENANT_HEADER = "x-walkway-tenant"
MAX_PRIORITY = 15
MAX_LOGPROBS = 20
MAX_NAME_BYTES = 128
MAX_SALT_BYTES = 256
MAX_MESSAGES = 4096
MAX_STOP_STRINGS = 16
MAX_STOP_BYTES = 1024
MAX_STOP_IDS = 128
MAX_BIASES = 1024
LEAST_REPETITION_PENALTY = 0.01


def check_fields(request: pb.GenerateRequest, ready: Ready, tenant_header: str) -> None:
    """Raises InvalidArgument with all that is wrong."""
    fields = Fields()
    _check_prompt(fields, request, ready)
    _check_sampling(fields, request.sampling, ready)
    _check_stopping(fields, request.stopping, ready)
    _check_rest(fields, request)
    if not request.tenant:
        fields.bytes(TENANT_HEADER, tenant_header, MAX_NAME_BYTES)
    fields.settle()


def check_chat(fields: Fields, chat: pb.Chat) -> None:
    """At least one message, each with a role."""
    fields.require(len(chat.messages) > 0, "chat", "has 0 messages, at least 1 is needed")
    if not fields.count("chat.messages", len(chat.messages), MAX_MESSAGES):
        return
    for index, message in enumerate(chat.messages):
        fields.require(message.role != "", f"chat.messages[{index}].role", "is empty")


def check_ids(fields: Fields, field: str, ids: Sequence[int], ready: Ready) -> None:
    """What is too long anyway is not read: millions of ids would hold up the event loop."""
    count, most = len(ids), ready.context_tokens
    if count > most:
        fields.add(field, f"has {count} tokens, the context is {most}")
    else:
        fields.ids(field, ids, ready.vocab_size)


def _check_prompt(fields: Fields, request: pb.GenerateRequest, ready: Ready) -> None:
    match request.WhichOneof("prompt"):
        case None:
            fields.add("prompt", "none of text, token_ids and chat is set, one is needed")
        case "token_ids":
            check_ids(fields, "token_ids.ids", request.token_ids.ids, ready)
        case "chat":
            check_chat(fields, request.chat)


def _check_sampling(fields: Fields, sampling: pb.Sampling, ready: Ready) -> None:
    fields.between("sampling.temperature", sampling.temperature, 0, MAX_TEMPERATURE)
    fields.between("sampling.min_p", sampling.min_p, 0, 1)
    fields.between("sampling.frequency_penalty", sampling.frequency_penalty, -2, 2)
    fields.between("sampling.presence_penalty", sampling.presence_penalty, -2, 2)
    if sampling.HasField("top_p"):
        fields.above_zero("sampling.top_p", sampling.top_p, 1)
    if sampling.HasField("repetition_penalty"):
        # 0.01 as a float of the wire is a little less than 0.01.
        penalty = round(sampling.repetition_penalty, 6)
        fields.between("sampling.repetition_penalty", penalty, LEAST_REPETITION_PENALTY, 10)
    if fields.count("sampling.logit_bias", len(sampling.logit_bias), MAX_BIASES):
        fields.ids("sampling.logit_bias", sampling.logit_bias, ready.vocab_size)
        for token, bias in sampling.logit_bias.items():
            fields.between(f"sampling.logit_bias[{token}]", bias, -100, 100)


def _check_stopping(fields: Fields, stopping: pb.Stopping, ready: Ready) -> None:
    fields.duration("stopping.max_time", stopping, "max_time")
    stops, ids = stopping.stop_strings, stopping.stop_token_ids
    if fields.count("stopping.stop_strings", len(stops), MAX_STOP_STRINGS):
        for index, stop in enumerate(stops):
            fields.bytes(f"stopping.stop_strings[{index}]", stop, MAX_STOP_BYTES, least=1)
    if fields.count("stopping.stop_token_ids", len(ids), MAX_STOP_IDS):
        fields.ids("stopping.stop_token_ids", ids, ready.vocab_size)
    most = stopping.max_tokens if stopping.HasField("max_tokens") else ready.context_tokens
    fields.between("stopping.min_tokens", stopping.min_tokens, 0, most)


def _check_rest(fields: Fields, request: pb.GenerateRequest) -> None:
    for name in ("logprobs", "prompt_logprobs"):
        fields.between(f"output.{name}", getattr(request.output, name), 0, MAX_LOGPROBS)
    if request.HasField("request_id"):
        fields.bytes("request_id", request.request_id, MAX_NAME_BYTES, least=1)
    fields.bytes("tenant", request.tenant, MAX_NAME_BYTES)
    fields.bytes("cache_salt", request.cache_salt, MAX_SALT_BYTES)
    fields.between("priority", request.priority, 0, MAX_PRIORITY)
    fields.duration("deadline", request, "deadline")
    fields.duration("first_token_deadline", request, "first_token_deadline")
    if request.HasField("tokens_per_second"):
        fields.positive("tokens_per_second", request.tokens_per_second)
