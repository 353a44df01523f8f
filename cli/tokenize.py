"""Shows how a service's model cuts a prompt into tokens."""

import sys
from collections.abc import Iterator, Sequence

import grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.as_json import print_json
from cli.asking import open_channel
from protos.walkway.v1 import inference_pb2 as pb
from protos.walkway.v1 import inference_pb2_grpc as pb_grpc

TIMEOUT_S = 30.0
AHEAD = 64
"""Questions for a piece that are sent before the first is answered."""


def show_tokens(
    target: str, text: str, as_chat: bool, system: str | None, as_json: bool
) -> None:
    """Ids and pieces of a text, or of a chat of it and a system message."""
    text = sys.stdin.read() if text == "-" else text
    request = pb.TokenizeRequest()
    if as_chat:
        roles = [("system", system)] if system is not None else []
        said = [pb.ChatMessage(role=r, content=c) for r, c in [*roles, ("user", text)]]
        request.chat.messages.extend(said)
    else:
        request.text = text
    with open_channel(target) as channel:
        stub = pb_grpc.InferenceServiceStub(channel)  # type: ignore[no-untyped-call]
        ids = list(stub.Tokenize(request, timeout=TIMEOUT_S).token_ids)
        pieces = list(_pieces(stub, ids))
    tokens = list(zip(ids, pieces, strict=True))
    if as_json:
        print_json({"tokens": [{"id": id, "text": piece} for id, piece in tokens]})
        return
    table = Table(box=None)
    for column in ("position", "id"):
        table.add_column(column, justify="right")
    table.add_column("text", overflow="fold")
    for position, (id, piece) in enumerate(tokens):
        table.add_row(str(position), str(id), Text(repr(piece)))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{len(tokens)} tokens")


def _pieces(stub: pb_grpc.InferenceServiceStub, ids: Sequence[int]) -> Iterator[str]:
    """The text of each token by itself. A piece of a character is U+FFFD."""
    distinct = list(dict.fromkeys(ids))
    found: dict[int, str] = {}
    for start in range(0, len(distinct), AHEAD):
        chunk = distinct[start : start + AHEAD]
        calls: list[grpc.CallFuture[pb.DetokenizeResponse]] = [
            stub.Detokenize.future(
                pb.DetokenizeRequest(token_ids=[id], skip_special_tokens=False),
                timeout=TIMEOUT_S,
            )
            for id in chunk
        ]
        found |= {id: call.result().text for id, call in zip(chunk, calls, strict=True)}
    yield from (found[id] for id in ids)
