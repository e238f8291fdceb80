"""``minitx power``: what stored runs promise of a run with more or fewer seeds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from minitx.cli import OK, tables
from minitx.cli.select import select
from minitx.errors import MinitxError
from minitx.lab import Experiment, Results
from minitx.lab.power import GOAL, SIZES, Power, power
from minitx.lab.stored import stored_results

FEW = 10  # with fewer stored seeds, power says too much


def show_power(
    target: str, seeds: list[int], design: bool, out: Path, overrides: dict[str, str]
) -> int:
    """Print a table for each experiment behind the name.

    Raises
    ------
    MinitxError
        If nothing is stored, or a number of seeds is below 1.
    """
    from minitx import kernels

    if min(seeds) < 1:
        raise MinitxError(f"Numbers of seeds are at least 1, got {min(seeds)}.")
    experiments, broken = select(target)
    for name, why in broken.items():
        raise MinitxError(f"{name} cannot be imported: {why}.")
    context = {"kernels": kernels.active()}
    stored = [
        stored_results(each, out, design=design, overrides=overrides, context=context)
        for each in experiments
    ]
    console = tables.console()
    for each, results in zip(experiments, stored, strict=True):
        _table(console, each, results, power(each.claims, results, seeds), seeds)
    return OK


def _table(
    out: Console, experiment: Experiment, results: Results, found: list[Power], seeds: list[int]
) -> None:
    out.print()
    title = f"{experiment.name}: how often would runs of so many seeds support each claim?"
    out.print(Text(title, style="bold"))
    out.print(
        f"Judged on {len(results.seeds)} stored seeds ({tables.seed_range(results.seeds)}), "
        "drawn again and again.",
        style="dim",
    )
    if len(results.seeds) < FEW:
        out.print(
            "So few stored seeds promise too much: take this as a first look.", style="yellow"
        )
    table = tables.new_table(out)
    table.add_column("", no_wrap=True)
    table.add_column("claim", ratio=1)
    for n in seeds:
        table.add_column(f"{n} seed{'s' * (n != 1)}", justify="right", no_wrap=True)
    table.add_column(f"{100 * GOAL:.0f} %\nneeds", justify="right", no_wrap=True)
    for each in found:
        claim = each.claim
        kind = "control" if claim and claim.control else "effect" if claim else ""
        needed = f"> {SIZES[-1]}" if each.needed is None else str(each.needed)
        shares = [_percent(each.shares[n]) for n in seeds]
        if claim is None:
            table.add_section()
        table.add_row(kind, Text(claim.text if claim else "all claims at once"), *shares, needed)
    out.print(table)


def _percent(share: float) -> Text:
    return Text(f"{100 * share:.0f} %", style="green" if share >= GOAL else "yellow")
