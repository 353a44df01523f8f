"""The commands that try schedulers without a model: they need no service."""

from pathlib import Path
from typing import Annotated

import typer

from cli.arguments import AsJson, Assignments, Config
from cli.completion import complete_profile
from cli.plugins import PANEL

Profile = Annotated[
    str,
    typer.Option(
        help="Step costs and pools: a profile's name, or a .json file.",
        autocompletion=complete_profile,
    ),
]
Schedulers = Annotated[
    list[str],
    typer.Option("--scheduler", help="`NAME` or `'NAME option=value ...'`; repeatable."),
]
Trace = Annotated[
    str | None,
    typer.Option(help="Azure CSV, Mooncake .jsonl, or `sample`; default: a workload."),
]
Workload = Annotated[str, typer.Option(help="Closed loop, or open with --rate.")]
Clients = Annotated[
    int | None, typer.Option(min=1, help="Of a workload's closed loop; default: max rows.")
]
Rate = Annotated[float | None, typer.Option(min=1e-6, help="A workload's requests a second.")]
Requests = Annotated[
    int | None, typer.Option(min=1, help="At most (trace), or so many drawn (workload).")
]
Start = Annotated[float, typer.Option(min=0, help="Seconds of the trace to leave out.")]
Seconds = Annotated[float | None, typer.Option(help="Only so much of the trace, unscaled.")]
Speedup = Annotated[float, typer.Option(min=1e-6, help="2: twice the trace's rate.")]
TokenScale = Annotated[float, typer.Option(min=1e-6, help="0.1: a tenth as long.")]
Priorities = Annotated[str | None, typer.Option(help="PRIORITY:SHARE,... drawn at random.")]
Tenants = Annotated[str | None, typer.Option(help="TENANT:SHARE,... drawn at random.")]
Slack = Annotated[
    float | None,
    typer.Option(min=0, help="Deadlines: so many times what a request takes alone."),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="NAME=VALUE over the profile's: max_rows, max_step_tokens, device_pages, "
        "host_pages, watermark_pages, context_tokens, target_gap_s; repeatable.",
    ),
]
TTFT = Annotated[
    float | None,
    typer.Option(min=0, help="SLO: seconds to the first token; default: 5 full steps."),
]
TPOT = Annotated[
    float | None,
    typer.Option(min=0, help="SLO: seconds a token after it; default: 3 decode steps."),
]
Gantt = Annotated[
    str | None, typer.Option(help="START:SECONDS drawn as bars; default: when busiest.")
]
Pictures = Annotated[
    bool | None,
    typer.Option(
        "--pictures/--no-pictures", help="PNG plots; default: where matplotlib is installed."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn at random.")]
Check = Annotated[bool, typer.Option("--check", help="Check every invariant: very slow.")]
Out = Annotated[Path, typer.Option(help="Folder for tables, JSON, CSV and pictures.")]


def simulate(
    scheduler: Schedulers,
    profile: Profile = "cpu",
    trace: Trace = None,
    workload: Workload = "mixed",
    clients: Clients = None,
    rate: Rate = None,
    requests: Requests = None,
    start: Start = 0.0,
    seconds: Seconds = None,
    speedup: Speedup = 1.0,
    token_scale: TokenScale = 1.0,
    priorities: Priorities = None,
    tenants: Tenants = None,
    deadline_slack: Slack = None,
    limits: Limits = None,
    slo_ttft: TTFT = None,
    slo_tpot: TPOT = None,
    gantt: Gantt = None,
    seed: Seed = 0,
    pictures: Pictures = None,
    check: Check = False,
    out: Out = Path("simulation"),
    as_json: AsJson = False,
) -> None:
    """Run schedulers on a trace or a workload, on a virtual clock."""
    from cli.simulate import Wanted, run_simulation

    wanted = Wanted(
        schedulers=scheduler,
        profile=profile,
        limits=limits or [],
        trace=trace,
        start_s=start,
        seconds=seconds,
        speedup=speedup,
        token_scale=token_scale,
        workload=workload,
        clients=clients,
        rate_per_s=rate,
        requests=requests,
        priorities=priorities,
        tenants=tenants,
        slack=deadline_slack,
        seed=seed,
        ttft_s=slo_ttft,
        tpot_s=slo_tpot,
        gantt=gantt,
        pictures=pictures,
        check=check,
        out=out,
        as_json=as_json,
    )
    raise typer.Exit(run_simulation(wanted))


def calibrate(
    out: Annotated[Path, typer.Option(help="The profile to write.")] = Path("profile.json"),
    config: Config = None,
    assignments: Assignments = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each step; medians count.")] = 5,
) -> None:
    """Measure what steps cost here, as a profile for `walkway simulate`."""
    from cli.calibrate import run_calibration

    raise typer.Exit(run_calibration(out, config, assignments or [], repeats))


def register_simulation(app: typer.Typer) -> None:
    """Add the commands to `walkway`."""
    for command in (simulate, calibrate):
        app.command(rich_help_panel=PANEL)(command)
