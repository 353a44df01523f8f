"""Puts another strategy in place between two steps, or says why not."""

import traceback
from collections.abc import Callable

import structlog

from schedulers.registry import UnknownScheduler
from service.messages import SchedulerSet, SetScheduler
from service.one_line import one_line
from service.options import shown_options
from service.planner import Planner
from service.strategy import BadOptions, make_scheduler

SLOW_S = 0.1

log = structlog.get_logger()


def exchange(
    planner: Planner, command: SetScheduler, clock: Callable[[], float]
) -> SchedulerSet:
    """Whatever a plug-in raises when it is imported or made is the answer, and the strategy
    stays. Steps wait meanwhile; a plug-in that never comes back is a stall like any other.
    The generation of the answer is not filled in."""
    began_s = clock()
    error, in_options = _put(planner, command)
    took_s = clock() - began_s
    if took_s > SLOW_S:
        log.warning("exchange_held_steps_up", scheduler=command.name, took_s=round(took_s, 3))
    return SchedulerSet(generation=0, ticket=command.ticket, error=error, in_options=in_options)


def _put(planner: Planner, command: SetScheduler) -> tuple[str | None, bool]:
    """What is wrong, and whether with the options."""
    name = command.name
    try:
        scheduler = make_scheduler(name, command.options)
        options = shown_options(scheduler, command.options)
    except (UnknownScheduler, BadOptions) as refused:
        return one_line(refused), isinstance(refused, BadOptions)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in's may derive from that alone
        # As text: a log that shows local variables would run the plug-in's code once more.
        trace = "".join(traceback.format_exception(error))
        log.error("scheduler_not_made", scheduler=name, traceback=trace)
        why = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        return f"scheduler {name!r} cannot be made: {why}", False
    planner.exchange(name, scheduler, options)
    return None, False
