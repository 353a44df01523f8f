"""The channel between front end and engine: one ordered socket, commands in, events out.

The engine never blocks on it and drops nothing. It keeps at most `WINDOW` messages
unacknowledged; news that comes while it has no credit waits, merged, in its outbox. So a
front end that does not read costs neither the engine's speed nor unbounded memory. Answers
to what the front end asked go out at once and need no credit: there are only as many as it
asked for, and they may overtake news. The other direction is bounded by what the front end
admits.

The front end binds a socket file in a private folder and the engine connects, so either
may be gone at any time without the other noticing here: deaths are seen elsewhere.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
import zmq

from service.messages import (
    Ack,
    Command,
    End,
    Event,
    Failed,
    Inspect,
    Inspected,
    Ping,
    Ready,
    RequestEvent,
    SchedulerSet,
    SetScheduler,
    StepEvents,
    StepStats,
    Stop,
    Submit,
)
from service.outbox import Outbox

WINDOW = 2
LAST_WORDS_S = 5.0

_encode = msgspec.msgpack.Encoder().encode
_decode_command = msgspec.msgpack.Decoder(Command).decode
_decode_event = msgspec.msgpack.Decoder(Event).decode
_ACK = _encode(Ack())


Told = Submit | End | Stop | SetScheduler | Inspect | Ping
"""What the front end says to an engine, but for acknowledgements."""

Socket = zmq.Socket[bytes]
Context = zmq.Context[Socket]


def _open(context: Context, linger_s: float) -> Socket:
    """`linger_s`: how long what is unsent keeps the context from ending. A connection takes
    it over when it is made, so it has to be set before: given at the close alone, it is lost
    on a connection that breaks at that moment, and the context would wait for ever
    (https://github.com/zeromq/libzmq/issues/3252)."""
    socket: Socket = context.socket(zmq.PAIR)
    socket.set_hwm(0)
    socket.linger = int(linger_s * 1e3)
    return socket


def _take(socket: Socket) -> bytes | None:
    """The next frame that is here; None when there is none."""
    try:
        frame: bytes = socket.recv(zmq.NOBLOCK)
    except zmq.Again:
        return None
    return frame


class EngineSocket:
    """The engine's end. To be used by the thread that made it."""

    def __init__(self, address: str, generation: int) -> None:
        self._generation = generation
        self._context: Context = zmq.Context()
        self._socket = _open(self._context, LAST_WORDS_S)
        self._socket.connect(address)
        self._credit = WINDOW
        self._outbox = Outbox()

    def announce(self, ready: Ready) -> None:
        self._socket.send(_encode(ready))

    def receive(self, wait_s: float | None) -> list[Told]:
        """The commands that came, in order. Waits for a message up to `wait_s` (None: until
        one comes); may return none when only acknowledgements came."""
        if wait_s != 0:
            self._socket.poll(None if wait_s is None else math.ceil(wait_s * 1e3))
        commands: list[Told] = []
        while (frame := _take(self._socket)) is not None:
            command = _decode_command(frame)
            if isinstance(command, Ack):
                self._credit += 1
            else:
                commands.append(command)
        if self._credit and self._outbox:
            self._flush()
        return commands

    def send(self, events: list[RequestEvent], stats: StepStats) -> None:
        """Tell the front end now if it keeps up, else later. The events are given away."""
        self._outbox.add(events, stats)
        if self._credit:
            self._flush()

    def answer(self, answer: SchedulerSet | Inspected) -> None:
        """Tell the front end what it asked for; the generation is filled in here."""
        self._socket.send(_encode(msgspec.structs.replace(answer, generation=self._generation)))

    def fail(self, message: str) -> None:
        """Last words: all news left, then why. Waits a while until they were heard."""
        if self._outbox:
            self._flush()
        self._socket.send(_encode(Failed(self._generation, message)))
        until_s = time.monotonic() + LAST_WORDS_S
        while (left_s := until_s - time.monotonic()) > 0:
            if any(isinstance(command, Stop) for command in self.receive(left_s)):
                return

    def close(self) -> None:
        self._context.destroy()

    def _flush(self) -> None:
        self._credit -= 1
        self._socket.send(_encode(self._outbox.take(self._generation)))


class FrontSocket:
    """The front end's end, on the running event loop, which calls `on_event` for each event
    in order. A step's events are acknowledged before they are handed over."""

    def __init__(
        self, context: Context, address: str, on_event: Callable[[Event], None]
    ) -> None:
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._socket = _open(context, linger_s=0.0)
        self._socket.bind(address)
        self._loop.add_reader(self._socket.FD, self.drain)

    def send(self, command: Told) -> None:
        """Never blocks. Raises ConnectionError when no engine is connected."""
        try:
            self._socket.send(_encode(command), zmq.NOBLOCK)
        except zmq.ZMQError as error:  # nobody is connected, or this end is closed
            raise ConnectionError("no engine is connected") from error
        self._rearm()

    def drain(self) -> None:
        """Hand over everything that is here."""
        if self._socket.closed:
            return
        try:
            while (frame := _take(self._socket)) is not None:
                event = _decode_event(frame)
                if isinstance(event, StepEvents):
                    with suppress(zmq.Again):  # an engine that is gone needs no credit
                        self._socket.send(_ACK, zmq.NOBLOCK)
                self._on_event(event)
        finally:
            self._rearm()

    def close(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.FD)
            self._socket.close()

    def _rearm(self) -> None:
        # The descriptor signals a change once, and any send or receive may swallow the
        # signal: what became readable meanwhile would wait until the next message.
        if not self._socket.closed and self._socket.poll(0):
            self._loop.call_soon(self.drain)
