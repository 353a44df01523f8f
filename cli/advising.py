"""The command that tells an operator what to set: it needs no service."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from cli.arguments import AsJson
from cli.simulation import (
    LOAD,
    TPOT,
    TTFT,
    FirstTokenSlack,
    Lengths,
    Limits,
    Pace,
    Priorities,
    Profile,
    Requests,
    Seconds,
    Seed,
    Slack,
    Speedup,
    Start,
    Tenants,
    TimedShare,
    TokenScale,
)


class Matters(StrEnum):
    """Names of `bench.advice.objective.OBJECTIVES`."""

    GOODPUT = "goodput"
    DEADLINES = "deadlines"
    URGENT = "urgent"
    TENANTS = "tenants"


def advise(
    trace: Annotated[
        str, typer.Option(metavar="FILE", help="Azure CSV, Mooncake .jsonl, or `sample`.")
    ],
    profile: Profile = "cpu",
    priorities: Priorities = None,
    tenants: Tenants = None,
    deadline_slack: Slack = None,
    first_token_slack: FirstTokenSlack = None,
    pace: Pace = None,
    deadline_share: TimedShare = None,
    lengths: Lengths = "untold",
    objective: Annotated[
        Matters | None,
        typer.Option(
            help="What matters; default: deadlines where there are some, else the urgent, "
            "else the tenants, else goodput."
        ),
    ] = None,
    scheduler: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Try this one too: `'NAME option=value ...'`; repeatable.",
        ),
    ] = None,
    what_if: Annotated[
        float,
        typer.Option(
            metavar="TIMES",
            rich_help_panel=LOAD,
            min=1e-6,
            help="Also at this multiple of the trace's rate.",
        ),
    ] = 1.5,
    requests: Requests = None,
    start: Start = 0.0,
    seconds: Seconds = None,
    speedup: Speedup = 1.0,
    token_scale: TokenScale = 1.0,
    limits: Limits = None,
    slo_ttft: TTFT = None,
    slo_tpot: TPOT = None,
    seed: Seed = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; default: cores.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the strategy and limits that serve a trace best, by simulation."""
    from bench.simulation.loads import Cut
    from cli.advise import Wanted, run_advice
    from cli.simulated_load import ClassesWanted

    wanted = Wanted(
        trace=trace,
        cut=Cut(start, seconds, requests, speedup, token_scale),
        profile=profile,
        limits=limits or [],
        classes=ClassesWanted(
            *(priorities, tenants, deadline_slack, first_token_slack),
            *(pace, deadline_share, lengths, seed),
        ),
        objective=None if objective is None else objective.value,
        schedulers=scheduler or [],
        what_if=what_if,
        ttft_s=slo_ttft,
        tpot_s=slo_tpot,
        jobs=jobs or os.cpu_count() or 1,
        as_json=as_json,
    )
    raise typer.Exit(run_advice(wanted))


def register_advising(app: typer.Typer) -> None:
    """Add it to `walkway`, next to the simulator."""
    from cli.plugins import PANEL

    app.command(rich_help_panel=PANEL)(advise)
