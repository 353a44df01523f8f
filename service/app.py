"""The composition root: settings in, a running service out, and its exit code."""

import asyncio
import gc
import signal
import sys
from contextlib import AsyncExitStack

import structlog

from models.tokenizer import Tokenizer, load_tokenizer
from models.toy import ToyTokenizer
from service.build import build
from service.descriptors import raise_limit
from service.engine_process import Build
from service.frontend import FrontEnd, LoadTokenizer, StartError
from service.listeners import ListenerLost
from service.logs import configure_logs
from service.reload import Reload, Reread
from service.settings import Settings
from service.supervisor import EngineLost

log = structlog.get_logger()


async def serve(settings: Settings, build: Build, load: LoadTokenizer, reread: Reread) -> None:
    """Serve until SIGTERM or SIGINT, of which the second ends at once; SIGHUP reads the
    settings again. Raises StartError, EngineLost and ListenerLost."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        front = FrontEnd(settings, build, load)
        leaving = front.leaving
        loop.add_signal_handler(signal.SIGTERM, lambda: leaving.ask(patiently=True))
        loop.add_signal_handler(signal.SIGINT, leaving.ask)
        stack.push_async_callback(front.stop)
        reload = Reload(settings, reread, front.desk.exchange, front.in_force)
        loop.add_signal_handler(signal.SIGHUP, reload.ask)
        reloading = asyncio.create_task(reload.run())
        stack.callback(reloading.cancel)
        starting = asyncio.create_task(front.start())
        stopping = asyncio.create_task(leaving.asked.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            starting.result()
            _settle_memory()
            await front.run()
        else:
            starting.cancel()
            await asyncio.wait({starting})


def _settle_memory() -> None:
    """What is there at the start stays: the collector need not look through it again and
    again, which would hold up all calls for a tenth of a second when thousands come."""
    gc.collect()
    gc.freeze()


def main(settings: Settings, reread: Reread) -> int:
    """Serve, and the exit code: 0 after a signal, 2 when it cannot start, 1 when the engine
    or a listener was lost. Each error is one line on stderr. `reread` reads the same sources
    again and raises ConfigError."""
    configure_logs(settings.log)
    raise_limit()
    try:
        asyncio.run(serve(settings, build, tokenizer_of, reread))
    except StartError as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    except (EngineLost, ListenerLost) as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 1
    return 0


def tokenizer_of(source: str) -> Tokenizer:
    """The tokenizer of the setting `model.source`. Raises ModelError."""
    if source == "toy":
        return ToyTokenizer()
    tokenizer = load_tokenizer(source)
    if tokenizer.corrects_template:
        log.warning("chat_template_begins_twice", model=source, mended=True)
    if tokenizer.assumes_rule:
        log.warning(
            "tokenizer_rule_assumed",
            model=source,
            rule=tokenizer.rule,
            why="the file names none (with the model's tokenizer.json beside it that is read)",
        )
    if tokenizer.misreads_template:
        log.warning("chat_template_misread", model=source, why="control tokens become text")
    return tokenizer
