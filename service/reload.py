"""SIGHUP: the configuration is read again, and of what changed the scheduler is exchanged."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from service.config import ConfigError
from service.daemon import in_daemon_thread
from service.desk import Rejected
from service.errors import ServiceError
from service.settings import Settings

log = structlog.get_logger()

Reread = Callable[[], Settings]
Exchange = Callable[[str, dict[str, Any]], Awaitable[None]]
InForce = Callable[[], tuple[str, dict[str, Any]]]  # name and options of who plans now


class Reload:
    """`run` beside the service, `ask` from a signal handler. Requests to reload that come
    while one is carried out become one."""

    def __init__(
        self, settings: Settings, reread: Reread, exchange: Exchange, in_force: InForce
    ) -> None:
        self._settings = settings
        self._reread = reread
        self._exchange = exchange
        self._in_force = in_force
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Reload soon."""
        self._asked.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.reload()

    async def reload(self) -> None:
        """Put the configured strategy in force, whoever put another there. One line in the
        log for whatever goes wrong; then nothing has changed, unless a busy engine did not
        answer in time and the exchange comes later."""
        try:
            wanted = await in_daemon_thread(self._reread)
            choice = wanted.scheduler.name, wanted.scheduler.options
            exchanges = self._in_force() != choice
            if exchanges:
                await self._exchange(*choice)
        except (ConfigError, Rejected, ServiceError) as error:
            log.error("reload_failed", why=str(error))
            return
        except Exception as error:  # a bug of ours must not end the service
            log.error("reload_failed", exc_info=error)
            return
        log.info("reloaded", scheduler_changed=exchanges)
        if changed := changes(self._settings, wanted):
            log.warning("settings_need_a_restart", changed=changed)


def changes(old: Settings, new: Settings) -> list[str]:
    """Fields that differ and that only a restart puts in force, as `group.field`."""
    found = []
    for group in type(old).model_fields:
        before, after = getattr(old, group), getattr(new, group)
        for field in type(before).model_fields:
            exchangeable = group == "scheduler" and field in ("name", "options")
            if getattr(before, field) != getattr(after, field) and not exchangeable:
                found.append(f"{group}.{field}")
    return found
