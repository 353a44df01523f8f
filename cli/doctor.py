"""Says what would run on this machine, why, and what to do about what is missing."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from cli import probes
from cli.findings import Finding, Grade, fault
from cli.machine import Fault, Machine, Model, Serving
from cli.probes import attempt
from cli.verdicts import judge
from service.config import ConfigError, load_settings
from service.settings import Settings

COLOURS = {Grade.OK: "green", Grade.NOTE: "yellow", Grade.FAULT: "red"}


def doctor(config: Path | None, assignments: Sequence[str], as_json: bool) -> int:
    """Exit code: 0 when the settings would run here, 1 when not, 2 when they are wrong."""
    try:
        settings = load_settings(config, assignments)
    except ConfigError as error:
        print(f"walkway: {error}", file=sys.stderr)
        return 2
    torch = attempt(lambda: import_module("torch"))
    if isinstance(torch, Fault):
        findings = [fault("torch", torch.why, "install walkway again: nothing runs without")]
    else:
        findings = judge(examine(settings), settings)
    runs = all(finding.grade is not Grade.FAULT for finding in findings)
    if as_json:
        print(json.dumps({"runs": runs, "findings": [asdict(found) for found in findings]}))
    else:
        show(findings, runs)
    return 0 if runs else 1


def examine(settings: Settings) -> Machine:
    """Look at everything. What cannot be looked at is a `Fault`."""
    from cli import gpu_probes, model_probes

    # First: what follows imports FlashInfer where a GPU is, and that import writes there.
    workspace = attempt(gpu_probes.workspace)
    model = attempt(lambda: model_probes.model(settings))
    config = model.config if isinstance(model, Model) else None
    return Machine(
        packages=probes.packages(),
        gpus=attempt(gpu_probes.gpus),
        model=model,
        serving=Serving() if config is None else model_probes.serving(config, settings),
        scheduler=probes.scheduler(settings),
        tools=probes.tools(),
        workspace=workspace,
        processor=attempt(probes.processor),
        room=attempt(probes.room),
        shared_memory=attempt(probes.shared_memory),
    )


def show(findings: Sequence[Finding], runs: bool) -> None:
    """A table, and the verdict in a line."""
    table = Table("", "", Column(overflow="fold"), show_header=False, box=None)
    for found in findings:
        said = Text(found.said)
        if found.advice:
            said.append(f"\n-> {found.advice}", style="bold")
        grade = Text(found.grade.value, style=COLOURS[found.grade])
        table.add_row(grade, found.topic, said)
    console = Console(highlight=False)
    console.print(table)
    verdict = "would run" if runs else "would not run: see what is marked fault"
    console.print(f"\nThis configuration {verdict}.")
