"""The engine's side of a start: build it, say READY, run the loop, say why it ended.

`run_engine` is the same for a process of its own (`process_main`) and for a thread.
"""

import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import structlog

from models.batch import Runner
from service.channel import EngineSocket
from service.core import Core
from service.costs import CostMeter
from service.logs import configure_logs
from service.loop import DecodeLoop
from service.messages import Ready
from service.one_line import one_line
from service.options import shown_options
from service.settings import SchedulerChoice, Settings
from service.strategy import make_scheduler
from service.suspect import Suspect

GC_THRESHOLDS = 2000, 5, 1000

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Built:
    """An engine that can start: its core, what computes its steps, what the front end is told
    of it (generation and scheduler are filled in here), and what is known of its costs."""

    core: Core
    runner: Runner
    ready: Ready
    meter: CostMeter = field(default_factory=CostMeter)


Build = Callable[[Settings], Built]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What one generation of the engine is started from. `build` is a function of a module,
    so that a process can import it; it loads the model and raises with one line for people
    when it cannot. The strategy is made before, and put into what was built with FCFS.
    `replaces` names the strategy that the one in `settings` stands in for."""

    address: str
    generation: int
    settings: Settings
    build: Build
    suspect: Suspect
    replaces: str = ""


def process_main(spec: EngineSpec) -> None:
    """Entry of the engine's own process, which never outlives the front end."""
    spin_briefly()
    grow_segments()
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    configure_logs(spec.settings.log)
    run_engine(spec, on_built=collect_seldom)


def collect_seldom() -> None:
    """Keep Python's search for garbage from holding steps up. What is loaded stays, so it is
    never searched again, and the oldest generation, where thousands of waiting requests are,
    hardly ever: next to nothing here refers to itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def spin_briefly() -> None:
    """Bound how long the model's threads spin when they wait for each other. Call before
    torch is imported: its OpenMP reads the environment once.

    Sleeping at once costs a quarter of the speed (a step has hundreds of waits), spinning for
    long makes a step ten times slower when somebody else wants the cores: ARCHITECTURE.md.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def grow_segments() -> None:
    """Let torch's memory on a GPU grow in place instead of in blocks of one size: less of it is
    free in pieces too small for a step. Call before torch is imported."""
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # the name before torch 2.9
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")


def run_engine(spec: EngineSpec, on_built: Callable[[], None] = lambda: None) -> None:
    """Serve until told to stop. A failure is said over the channel, not raised."""
    channel = EngineSocket(spec.address, spec.generation)
    started = False
    try:
        built = _built(spec)
        on_built()
        loop = DecodeLoop(
            built.core, built.runner, channel, suspect=spec.suspect, meter=built.meter
        )
        started = True
        channel.announce(
            msgspec.structs.replace(
                built.ready,
                generation=spec.generation,
                scheduler=built.core.planner.name,
                pid=os.getpid(),
            )
        )
        loop.run()
    except Exception as error:
        say = log.error if started else log.debug
        say("engine_failed", generation=spec.generation, exc_info=error)
        channel.fail(one_line(error))
    finally:
        channel.close()


def _built(spec: EngineSpec) -> Built:
    """The engine, with the chosen strategy in place of FCFS. That is made before anything
    else, and the suspect until it was: no engine comes up where the plug-in is gone, refuses
    its options, hangs or ends the process."""
    chosen = spec.settings.scheduler
    spec.suspect.value = True
    scheduler = make_scheduler(chosen.name, chosen.options)
    options = shown_options(scheduler, chosen.options)
    spec.suspect.value = False
    built = spec.build(spec.settings.model_copy(update={"scheduler": SchedulerChoice()}))
    planner = built.core.planner
    planner.exchange(chosen.name, scheduler, options)
    planner.replaces, planner.flag = spec.replaces, spec.suspect
    return built


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody is left to serve, and a step may hang in the main thread
