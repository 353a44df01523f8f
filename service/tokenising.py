"""Tokenises off the event loop: a long prompt must not hold up everybody's tokens."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from models.chat_template import ChatTemplateError, NoChatTemplate
from models.tokenizer import Tokenizer
from service.errors import InvalidArgument, NotOffered, Violation

THREADS = 2
MAX_COMPLAINT = 300  # characters: a status has to fit gRPC's 8 KiB of metadata

T = TypeVar("T")

Message = dict[str, str]


class Tokenising:
    """A tokenizer behind a few threads. What queues here is bounded by admission."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="walkway-tokenise")

    async def text(self, text: str) -> list[int]:
        """Token ids of a text, with the model's own special tokens."""
        return await self._run(lambda: self.tokenizer.encode(text))

    async def chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of a conversation. Raises NotOffered without a template, and
        InvalidArgument when the template refuses the messages."""
        try:
            return await self._run(lambda: self.tokenizer.chat(messages))
        except NoChatTemplate as error:
            raise NotOffered(str(error)) from error
        except ChatTemplateError as error:
            raise InvalidArgument([Violation("chat", str(error)[:MAX_COMPLAINT])]) from error

    async def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Text of token ids."""
        return await self._run(lambda: self.tokenizer.decode(ids, skip_special_tokens))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Let the threads end once they are done."""
        self._pool.shutdown(wait=False, cancel_futures=True)
