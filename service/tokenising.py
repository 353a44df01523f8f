"""Tokenises off the event loop: a long prompt must not hold up everybody's tokens."""

from collections.abc import Sequence

from models.chat_template import ChatTemplateError, NoChatTemplate
from models.errors import PromptTooLong
from models.tokenizer import Tokenizer
from service.errors import InvalidArgument, NotOffered, Violation
from service.lanes import Lanes

MAX_COMPLAINT = 300  # characters: a status has to fit gRPC's 8 KiB of metadata
BYTES_A_TOKEN = 4  # of a text that is made of token ids

Message = dict[str, str]


class Tokenising:
    """A tokenizer behind threads of its own. What queues here is bounded by admission."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._lanes = Lanes("walkway-tokenise")

    async def text(self, text: str, most_tokens: int | None = None) -> list[int]:
        """Token ids of a text, with the model's own special tokens. Raises InvalidArgument for
        one that surely has more than `most_tokens`, before anything else is done."""
        if most_tokens is not None and len(text) > most_tokens:
            least = self.tokenizer.least_tokens(text)
            if least > most_tokens:
                raise _too_long("text", least, most_tokens)
        return await self._lanes.run(len(text), lambda: self.tokenizer.encode(text))

    async def chat(
        self, messages: Sequence[Message], most_tokens: int | None = None
    ) -> list[int]:
        """Token ids of a conversation. Raises NotOffered without a template, and
        InvalidArgument when the template refuses the messages and as `text` does."""
        size = sum(len(message["content"]) for message in messages)
        try:
            return await self._lanes.run(
                size, lambda: self.tokenizer.chat(messages, most_tokens=most_tokens)
            )
        except NoChatTemplate as error:
            raise NotOffered(str(error)) from error
        except ChatTemplateError as error:
            raise InvalidArgument([Violation("chat", str(error)[:MAX_COMPLAINT])]) from error
        except PromptTooLong as error:
            raise _too_long("chat", error.least_tokens, most_tokens) from error

    async def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Text of token ids."""
        return await self._lanes.run(
            BYTES_A_TOKEN * len(ids), lambda: self.tokenizer.decode(ids, skip_special_tokens)
        )

    def close(self) -> None:
        """Let the threads end once they are done."""
        self._lanes.close()


def _too_long(field: str, least: int, most: int | None) -> InvalidArgument:
    why = f"has at least {least} tokens, the context is {most}"
    return InvalidArgument([Violation(field, why)])
