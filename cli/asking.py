"""Sends a prompt and shows the answer as it comes."""

import sys
from dataclasses import dataclass

import grpc
from rich.console import Console

from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1 import inference_pb2_grpc as pb_grpc

MESSAGE_BYTES = 64 * 2**20
THIS_MACHINE = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to answer; None is the service's default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def request(self) -> pb.GenerateRequest:
        """A request that lacks only its prompt."""
        return pb.GenerateRequest(
            sampling=pb.Sampling(
                temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed
            ),
            stopping=pb.Stopping(max_tokens=self.max_tokens, stop_strings=self.stop),
        )


def open_channel(target: str) -> grpc.Channel:
    """A channel whose own message limit is out of the way of the service's. What a proxy
    calls 127.0.0.1 is another machine: there it is not asked."""
    limits = ("grpc.max_receive_message_length", "grpc.max_send_message_length")
    options = [(name, MESSAGE_BYTES) for name in limits]
    # A call that a server which shuts down did not take is retried without end, else.
    options.append(("grpc.enable_retries", 0))
    if target.rpartition(":")[0] in THIS_MACHINE:
        options.append(("grpc.enable_http_proxy", 0))
    return grpc.insecure_channel(target, options=options)


def ask_text(target: str, prompt: str, wishes: Wishes) -> None:
    """Continue a text and say what it took."""
    request = wishes.request()
    request.text = sys.stdin.read() if prompt == "-" else prompt
    with open_channel(target) as channel:
        _, summary = show_answer(channel, request)
    show_summary(summary)


def show_answer(channel: grpc.Channel, request: pb.GenerateRequest) -> tuple[str, pb.Summary]:
    """Write the answer to stdout as it comes; the whole text and the summary at the end."""
    texts: list[str] = []
    summary = pb.Summary()
    stub = pb_grpc.InferenceServiceStub(channel)  # type: ignore[no-untyped-call]
    call = stub.GenerateStream(request)
    try:
        for message in call:
            texts.append(message.text)
            sys.stdout.write(message.text)
            sys.stdout.flush()
            if message.HasField("summary"):
                summary = message.summary
    finally:
        call.cancel()
        if texts:
            sys.stdout.write("\n")
            sys.stdout.flush()
    return "".join(texts), summary


def show_summary(summary: pb.Summary) -> None:
    """The usage and timing line, on stderr."""
    Console(stderr=True, highlight=False).print(
        summary_line(summary), style="dim", soft_wrap=True
    )


def summary_line(summary: pb.Summary) -> str:
    """Usage and timings of an answer in one line."""
    usage, timings = summary.usage, summary.timings
    first_s = timings.first_token.ToNanoseconds() / 1e9
    total_s = timings.total.ToNanoseconds() / 1e9
    reason = pb.FinishReason.Name(summary.finish_reason).removeprefix("FINISH_REASON_").lower()
    parts = [
        f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)",
        f"{usage.output_tokens} output tokens ({reason})",
        f"queue {timings.queue.ToNanoseconds() / 1e6:.0f} ms",
        f"first token {first_s * 1e3:.0f} ms",
        f"total {total_s:.2f} s",
    ]
    if usage.output_tokens > 1 and total_s > first_s:
        parts.append(f"{(usage.output_tokens - 1) / (total_s - first_s):.1f} tokens/s")
    parts += _disturbance(summary.scheduling)
    return " · ".join(parts) + f" · seed {summary.seed}"


def _disturbance(receipt: pb.SchedulingReceipt) -> list[str]:
    """What a request that had to give way met; most did not."""
    if not receipt.preemptions:
        return []
    times = "once" if receipt.preemptions == 1 else f"{receipt.preemptions} times"
    paused_s = receipt.paused.ToNanoseconds() / 1e9
    met = f"gave way {times} ({paused_s:.2f} s"
    if receipt.recomputed_tokens:
        met += f", {receipt.recomputed_tokens} tokens recomputed"
    if receipt.swapped_pages:
        met += f", {receipt.swapped_pages} pages swapped"
    return [met + ")"]
