"""Conversations with the model."""

import sys

import grpc
from rich.console import Console

from cli.asking import Wishes, open_channel, show_answer, show_summary
from cli.failures import describe
from protos.walkway.v1 import inference_pb2 as pb


def ask_once(target: str, system: str | None, message: str, wishes: Wishes) -> None:
    """One question, one answer."""
    with open_channel(target) as channel:
        _answer(channel, [*_opening(system), _said("user", message)], wishes)


def talk(target: str, system: str | None, wishes: Wishes) -> None:
    """Question after question until the end of input. A failed turn is said and forgotten."""
    console = Console(stderr=True)
    messages = _opening(system)
    with open_channel(target) as channel:
        while True:
            try:
                question = console.input("[bold]you[/bold] ")
            except EOFError:
                return
            if not question.strip():
                continue
            turn = [*messages, _said("user", question)]
            try:
                text = _answer(channel, turn, wishes)
            except grpc.RpcError as error:
                print(f"walkway: {describe(error, target)}", file=sys.stderr)
                continue
            messages = [*turn, _said("assistant", text)]


def _answer(channel: grpc.Channel, messages: list[pb.ChatMessage], wishes: Wishes) -> str:
    request = wishes.request()
    request.chat.messages.extend(messages)
    text, summary = show_answer(channel, request)
    show_summary(summary)
    return text


def _opening(system: str | None) -> list[pb.ChatMessage]:
    return [] if system is None else [_said("system", system)]


def _said(role: str, content: str) -> pb.ChatMessage:
    return pb.ChatMessage(role=role, content=content)
