"""The end of a channel whose other side vanishes at that very moment."""

import asyncio
import socket
import threading
from pathlib import Path

import msgspec
import zmq

from service.channel import FrontSocket
from service.messages import Event, Failed, SetScheduler

ROUNDS = 400
ENDS_WITHIN_S = 5.0
LONG = SetScheduler(1, "x" * 200_000)
UNREAD = 4  # of these, more than the system's socket holds

# What a peer says first in ZMTP 3.1 (https://rfc.zeromq.org/spec/37): who it is, and that it
# is ready.
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
PROPERTIES = b"\x05READY\x0bSocket-Type\x00\x00\x00\x04PAIR"
HELLO = GREETING + b"\x04" + bytes([len(PROPERTIES)]) + PROPERTIES


class Peer:
    """An engine's end of the channel that can vanish without a word, as a killed one does,
    and faster than any process starts."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._socket.sendall(HELLO)
        left = len(HELLO)  # the other side says the same of itself
        while left > 0:
            left -= len(self._socket.recv(left))

    def say(self, event: Event) -> None:
        frame = msgspec.msgpack.encode(event)
        self._socket.sendall(bytes([0, len(frame)]) + frame)

    def vanish(self) -> None:
        self._socket.close()


async def test_a_context_ends_though_the_engine_vanished_with_words_unread(
    tmp_path: Path,
) -> None:
    for round in range(ROUNDS):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        path = tmp_path / str(round)
        heard = asyncio.Event()
        front = FrontSocket(context, f"ipc://{path}", lambda event, heard=heard: heard.set())
        peer = Peer(path)
        peer.say(Failed(1, "no memory"))
        async with asyncio.timeout(ENDS_WITHIN_S):
            await heard.wait()
        for _ in range(UNREAD):
            front.send(LONG)
        peer.vanish()
        front.close()
        ending = threading.Thread(target=context.term, daemon=True)
        ending.start()
        ending.join(ENDS_WITHIN_S)
        assert not ending.is_alive(), f"round {round}"
