"""What the service says of itself during a run, from its Prometheus endpoint."""

import asyncio
import time
import urllib.request
from collections.abc import Coroutine
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families

from bench.recording import Sample
from bench.samples import Answer

EVERY_S = 0.5
TIMEOUT_S = 2.0


class ScrapeError(Exception):
    """The endpoint does not answer, or not as walkway does; one line for people."""


def read_sample(text: str, at_s: float, page_size: int) -> Sample:
    """The gauges of an exposition. Raises KeyError when they are not there."""
    found = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    # Pages have no state to show before the first step.
    held_pages = found.get(("walkway_kv_pages", "held"), 0.0)
    return Sample(
        at_s=at_s,
        running=found["walkway_requests", "running"],
        waiting=found["walkway_requests", "waiting"],
        held_slots=held_pages * page_size,
        used_slots=found["walkway_kv_used_slots", None],
    )


async def watched(
    run: Coroutine[None, None, list[Answer]], url: str, page_size: int
) -> tuple[list[Answer], list[Sample]]:
    """Do a run and scrape `url` beside it. Raises ScrapeError, which ends the run."""
    samples: list[Sample] = []
    running = asyncio.create_task(run)
    scraping = asyncio.create_task(_scrape(url, page_size, samples))
    await asyncio.wait({running, scraping}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        scraping.result()
    scraping.cancel()
    return running.result(), samples


async def _scrape(url: str, page_size: int, samples: list[Sample]) -> None:
    start_s = time.perf_counter()
    while True:
        try:
            text = await asyncio.to_thread(fetch, url)
            samples.append(read_sample(text, time.perf_counter() - start_s, page_size))
        except (OSError, ValueError, KeyError) as error:
            raise ScrapeError(f"{url}: {error}") from error
        await asyncio.sleep(EVERY_S)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        text: str = response.read().decode()
    return text
