"""Messages and values as JSON on stdout."""

import json
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """A message by protobuf's JSON mapping, whose 64-bit integers are strings, with the
    contract's own names and with fields that hold their default."""
    found: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def print_json(value: object) -> None:
    """On one line for each call, so that a stream of them can be read line by line."""
    print(json.dumps(value, ensure_ascii=False), flush=True)
