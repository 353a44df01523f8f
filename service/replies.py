"""Answers as messages of the wire."""

from protos.walkway.v1 import inference_pb2 as pb
from service.call import Call, Part
from service.errors import ServiceError, Unavailable
from service.messages import Finish, Ready
from service.packing import unpack
from service.receipts import duration, scheduling_events, scheduling_receipt
from service.requests import Answering, pool_pages

REASONS = {
    Finish.STOP: pb.FINISH_REASON_STOP,
    Finish.LENGTH: pb.FINISH_REASON_LENGTH,
    Finish.MAX_TIME: pb.FINISH_REASON_DEADLINE,
    Finish.EXPIRED: pb.FINISH_REASON_TIMEOUT,
    Finish.QUEUE_TIMEOUT: pb.FINISH_REASON_TIMEOUT,
    Finish.REFUSED: pb.FINISH_REASON_TIMEOUT,
    Finish.CANCELLED: pb.FINISH_REASON_CANCELLED,
    Finish.FAILED: pb.FINISH_REASON_ERROR,
}


def stream_message(part: Part, answering: Answering) -> pb.GenerateStreamResponse:
    """One delta."""
    return pb.GenerateStreamResponse(
        text=part.text if answering.text else "",
        token_ids=part.tokens if answering.token_ids else (),
        logprobs=logprobs(part.logprobs),
        prompt_logprobs=logprobs(part.prompt_logprobs),
        scheduling_events=scheduling_events(part.scheduling),
    )


def summary(call: Call) -> pb.Summary:
    """Why a call ended and what it cost."""
    receipt, times = call.receipt, call.times
    message = pb.Summary(
        request_id=call.request_id,
        finish_reason=_reason(call.finish, call.error),
        usage=pb.Usage(
            prompt_tokens=len(call.submit.prompt),
            cached_tokens=receipt.cached_tokens if receipt else 0,
            output_tokens=call.output_tokens,
            recomputed_tokens=receipt.recomputed_tokens if receipt else 0,
            preemptions=receipt.preemptions if receipt else 0,
        ),
        seed=call.submit.sampling.seed,
        timings=pb.Timings(
            queue=duration(call.queue_s),
            first_token=duration(times.after_arrival(times.first_token_s)),
            total=duration(times.after_arrival(times.end_s)),
        ),
        scheduling=scheduling_receipt(call),
    )
    if call.stop_string is not None:
        message.stop_string = call.stop_string
    elif call.stop_token is not None:
        message.stop_token_id = call.stop_token
    return message


def logprobs(packed: bytes | bytearray) -> list[pb.TokenLogprob]:
    """Log-probabilities as they are on the wire."""
    return [
        pb.TokenLogprob(
            token_id=entry.token,
            logprob=entry.logprob,
            alternatives=[pb.Alternative(token_id=t, logprob=p) for t, p in entry.top],
        )
        for entry in unpack(packed)
    ]


def model_info(
    ready: Ready, has_chat_template: bool, max_message_bytes: int, version: str
) -> pb.GetModelInfoResponse:
    """What is served."""
    return pb.GetModelInfoResponse(
        model=ready.model,
        family=ready.family,
        dtype=ready.dtype,
        vocab_size=ready.vocab_size,
        context_tokens=ready.context_tokens,
        eos_token_ids=ready.eos_ids,
        has_chat_template=has_chat_template,
        attention=ready.attention,
        attention_reason=ready.attention_why,
        batch_invariant=ready.batch_invariant,
        scheduler=ready.scheduler,
        kv_pages=pool_pages(ready),
        page_size=ready.page_size,
        max_message_bytes=max_message_bytes,
        server_version=version,
        temperature=ready.temperature,
    )


def _reason(finish: Finish | None, error: ServiceError | None) -> pb.FinishReason:
    if finish is not None:
        return REASONS[finish]
    if isinstance(error, Unavailable):
        return pb.FINISH_REASON_UNAVAILABLE
    return pb.FINISH_REASON_ERROR
