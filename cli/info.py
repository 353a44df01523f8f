"""Shows what a service serves."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.as_json import plain, print_json
from cli.asking import open_channel
from models.sizes import in_units
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1 import inference_pb2_grpc as pb_grpc

TIMEOUT_S = 10.0


def show_info(target: str, as_json: bool) -> None:
    """A table of GetModelInfo."""
    with open_channel(target) as channel:
        stub = pb_grpc.InferenceServiceStub(channel)  # type: ignore[no-untyped-call]
        found = stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=TIMEOUT_S)
        ends = [] if as_json else [_token(stub, id) for id in found.eos_token_ids]
    if as_json:
        print_json(plain(found))
        return
    table = Table(show_header=False, box=None)
    for name, value in _rows(found, ends):
        table.add_row(name, Text(value))
    Console(highlight=False).print(table)


def _token(stub: pb_grpc.InferenceServiceStub, id: int) -> str:
    request = pb.DetokenizeRequest(token_ids=[id], skip_special_tokens=False)
    return f"{id} {stub.Detokenize(request, timeout=TIMEOUT_S).text!r}"


def _rows(found: pb.GetModelInfoResponse, ends: list[str]) -> list[tuple[str, str]]:
    return [
        ("model", f"{found.model} ({found.family}, {found.dtype})"),
        ("context", f"{found.context_tokens} tokens"),
        ("vocabulary", f"{found.vocab_size} tokens"),
        ("temperature", f"{found.temperature:g} unless a request says otherwise"),
        ("end tokens", ", ".join(ends) or "none"),
        ("chat template", "yes" if found.has_chat_template else "no"),
        ("attention", f"{found.attention}: {found.attention_reason}"),
        ("batch invariant", "yes" if found.batch_invariant else "no"),
        ("scheduler", found.scheduler),
        ("KV pages", f"{found.kv_pages} of {found.page_size} tokens"),
        ("largest message", in_units(found.max_message_bytes)),
        ("version", found.server_version),
    ]
