"""The commands that try schedulers without a model: they need no service."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bench.simulation.peers import PEERS
from cli.arguments import AsJson, Assignments, Config
from cli.completion import complete_profile
from cli.plugins import PANEL

MACHINE, LOAD = "The machine", "The load"
CLASSES, OUTPUT = "Classes of requests, drawn at random", "What is written"


def _option(metavar: str, panel: str, help: str, **more: Any) -> Any:
    return typer.Option(metavar=metavar, rich_help_panel=panel, help=help, **more)


Schedulers = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler",
        metavar="NAME",
        help="Or `'NAME option=value ...'`; repeatable. For comparison also other engines' "
        f"policies: {', '.join(PEERS)}.",
    ),
]
Profile = Annotated[
    str,
    _option(
        "NAME",
        MACHINE,
        "Step costs and pools: a profile's name, or a .json file.",
        autocompletion=complete_profile,
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NAME=VALUE",
        rich_help_panel=MACHINE,
        help="Over the profile's: max_rows, max_step_tokens, device_pages, host_pages, "
        "watermark_pages, context_tokens, target_gap_s; repeatable.",
    ),
]
Trace = Annotated[
    str | None,
    _option("FILE", LOAD, "Azure CSV, Mooncake .jsonl, or `sample`; default: a workload."),
]
Workload = Annotated[str, _option("NAME", LOAD, "Closed loop, or open with --rate.")]
Clients = Annotated[
    int | None, _option("N", LOAD, "Of a workload's closed loop; default: max rows.", min=1)
]
Rate = Annotated[float | None, _option("N", LOAD, "A workload's requests a second.", min=1e-6)]
Requests = Annotated[
    int | None, _option("N", LOAD, "Limit of the trace; number drawn from the workload.", min=1)
]
Start = Annotated[float, _option("SECONDS", LOAD, "Of the trace to leave out.", min=0)]
Seconds = Annotated[
    float | None, _option("SECONDS", LOAD, "Only so much of the trace, unscaled.")
]
TimesCapacity = Annotated[
    float | None,
    _option(
        "TIMES", LOAD, "Rate as a multiple of the capacity, which is found first.", min=0.01
    ),
]
Capacity = Annotated[
    bool,
    typer.Option(
        "--capacity",
        rich_help_panel=LOAD,
        help="Only print the capacity: the highest rate that fcfs keeps up with, at most 5 % "
        "behind the arrivals at their end; by bisection.",
    ),
]
Speedup = Annotated[float, _option("TIMES", LOAD, "2: twice the trace's rate.", min=1e-6)]
TokenScale = Annotated[float, _option("TIMES", LOAD, "0.1: a tenth as long.", min=1e-6)]
Seed = Annotated[int, _option("N", LOAD, "Of all that is drawn at random.", min=0)]
Priorities = Annotated[str | None, _option("TEXT", CLASSES, "PRIORITY:SHARE,...")]
Tenants = Annotated[str | None, _option("TEXT", CLASSES, "TENANT:SHARE,...")]
Slack = Annotated[
    float | None,
    _option("TIMES", CLASSES, "Deadlines: this multiple of what a request takes alone.", min=0),
]
FirstTokenSlack = Annotated[
    float | None,
    _option("TIMES", CLASSES, "As --deadline-slack, for first tokens.", min=0),
]
Pace = Annotated[
    float | None, _option("N", CLASSES, "Tokens a second wanted after the first.", min=1e-6)
]
TimedShare = Annotated[
    float | None,
    _option("SHARE", CLASSES, "Requests that have these three; default: 1.", min=0, max=1),
]
Lengths = Annotated[
    Literal["told", "untold"],
    _option("told|untold", LOAD, "Whether strategies know the lengths of answers ahead."),
]
CostError = Annotated[
    float,
    _option(
        "SHARE",
        MACHINE,
        "Error of the costs that strategies see; 0.3: 30 % too high.",
        min=-0.99,
    ),
]
TTFT = Annotated[
    float | None,
    _option("SECONDS", OUTPUT, "SLO: to the first token; default: 5 full steps.", min=0),
]
TPOT = Annotated[
    float | None,
    _option("SECONDS", OUTPUT, "SLO: a token after it; default: 3 decode steps.", min=0),
]
Gantt = Annotated[
    str | None,
    _option("START:SECONDS", OUTPUT, "What is drawn as bars; default: when busiest."),
]
Pictures = Annotated[
    bool | None,
    typer.Option(
        "--pictures/--no-pictures",
        rich_help_panel=OUTPUT,
        help="PNG plots; default: where matplotlib is installed.",
    ),
]
Bound = Annotated[
    bool,
    typer.Option(
        "--bound",
        rich_help_panel=OUTPUT,
        help="Also what no schedule can exceed: deadlines met, in SLO, output tokens/s.",
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Check every invariant: very slow.")]
Out = Annotated[Path, _option("FOLDER", OUTPUT, "For tables, JSON, CSV and pictures.")]


def simulate(
    scheduler: Schedulers = None,
    profile: Profile = "cpu",
    trace: Trace = None,
    workload: Workload = "mixed",
    clients: Clients = None,
    rate: Rate = None,
    requests: Requests = None,
    start: Start = 0.0,
    seconds: Seconds = None,
    speedup: Speedup = 1.0,
    load: TimesCapacity = None,
    capacity: Capacity = False,
    token_scale: TokenScale = 1.0,
    priorities: Priorities = None,
    tenants: Tenants = None,
    deadline_slack: Slack = None,
    first_token_slack: FirstTokenSlack = None,
    pace: Pace = None,
    deadline_share: TimedShare = None,
    lengths: Lengths = "told",
    cost_error: CostError = 0.0,
    limits: Limits = None,
    slo_ttft: TTFT = None,
    slo_tpot: TPOT = None,
    gantt: Gantt = None,
    seed: Seed = 0,
    bound: Bound = False,
    pictures: Pictures = None,
    check: Check = False,
    out: Out = Path("simulation"),
    as_json: AsJson = False,
) -> None:
    """Run schedulers on a trace or a workload, on a virtual clock."""
    from cli.simulate import Wanted, run_simulation
    from cli.simulated_load import ClassesWanted, LoadWanted

    wanted = Wanted(
        schedulers=scheduler or [],
        profile=profile,
        limits=limits or [],
        load=LoadWanted(
            trace=trace,
            start_s=start,
            seconds=seconds,
            speedup=speedup,
            token_scale=token_scale,
            workload=workload,
            clients=clients,
            rate_per_s=rate,
            requests=requests,
            times_capacity=load,
            capacity=capacity,
            classes=ClassesWanted(
                *(priorities, tenants, deadline_slack, first_token_slack),
                *(pace, deadline_share, lengths, seed),
            ),
        ),
        cost_error=cost_error,
        bound=bound,
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
    as_json: AsJson = False,
) -> None:
    """Measure what steps cost here, as a profile for `walkway simulate`."""
    from cli.calibrate import run_calibration

    raise typer.Exit(run_calibration(out, config, assignments or [], repeats, as_json))


def register_simulation(app: typer.Typer) -> None:
    """Add the commands to `walkway`."""
    for command in (simulate, calibrate):
        app.command(rich_help_panel=PANEL)(command)
