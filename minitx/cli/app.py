"""The commands of ``minitx``. Each imports what it needs when it is called: ``--help`` is quick."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from minitx.errors import MinitxError

app = typer.Typer(
    name="minitx",
    help="Why large language models behave oddly, on a laptop: experiments with verdicts.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
exercises_app = typer.Typer(invoke_without_command=True, no_args_is_help=False)
app.add_typer(exercises_app, name="exercises")

Target = Annotated[
    str,
    typer.Argument(metavar="NAME", help="An experiment, such as sinks.emergence, or a file.py."),
]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting (repeatable)."),
]


def _overrides(settings: list[str]) -> dict[str, str]:
    """``--set key=value`` as a dictionary."""
    from minitx.lab.settings import split_assignment

    overrides: dict[str, str] = {}
    for text in settings:
        key, value = split_assignment(text)
        if key in overrides:
            raise MinitxError(f"--set {key} is given twice.")
        overrides[key] = value
    return overrides


def _whole(text: str) -> int:
    """A whole number from the command line; the error repeats what was given."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"expected a whole number, got {text!r}") from None


def _version(wanted: bool) -> None:
    if wanted:
        from minitx import __version__

        typer.echo(f"minitx {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Why large language models behave oddly, on a laptop: experiments with verdicts."""


@app.command("list")
def list_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="A list of objects: name, family, question, seconds.")
    ] = False,
) -> None:
    """List the experiments: name, question, expected time."""
    from minitx.cli.select import everything

    experiments, broken = everything()
    if as_json:
        rows = [
            {"name": e.name, "family": e.family, "question": e.question, "seconds": e.seconds}
            for e in experiments
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        from minitx.cli import tables

        tables.listing(tables.console(), experiments)
    for name, why in broken.items():
        typer.echo(f"minitx: {name} cannot be imported: {why}", err=True)


@app.command()
def show(name: Target) -> None:
    """Tell what an experiment asks, varies and claims."""
    from minitx.cli import tables
    from minitx.cli.select import select

    experiments, broken = select(name)
    out = tables.console()
    for index, experiment in enumerate(experiments):
        if index:
            out.print()
            out.rule(style="dim")
        tables.description(out, experiment)
    for module, why in broken.items():
        typer.echo(f"minitx: {module} cannot be imported: {why}", err=True)


@app.command()
def run(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="An experiment, a family, 'all', or a file.py."),
    ],
    seeds: Annotated[
        int | None,
        typer.Option(
            parser=_whole,
            metavar="N",
            help="How many seeds [default: 10; with --quick 3, with --design 20].",
        ),
    ] = None,
    seed_start: Annotated[
        int | None, typer.Option(parser=_whole, metavar="K", help="The first seed [default: 0].")
    ] = None,
    design: Annotated[
        bool,
        typer.Option(
            "--design", help="Seeds 100 to 119, to choose settings with; stored in OUT/design/."
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            parser=_whole,
            metavar="J",
            help="Runs at a time [default: one per core].",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small run; its verdicts are marked as a first look.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Results go to OUT/NAME/.")] = Path("runs"),
    settings: Settings = [],  # noqa: B006 (Typer copies it)
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore stored results.")] = False,
    backend: Annotated[
        str, typer.Option(help="loky (processes), sequential, dask, or dask:ADDRESS.")
    ] = "loky",
) -> int:
    """Run experiments and judge their claims.

    What is stored in OUT is used again if settings, code and seed match: after Ctrl-C the same
    command continues. Exit code 0: every claim is supported; 1: one is not; 2: wrong usage.
    """
    # One thread for each process: the runs, not their matrices, share out the cores.
    os.environ["MINITX_THREADS"] = "1"
    from minitx.cli.running import run_experiments
    from minitx.lab import runner

    wanted: int | tuple[int, ...]
    if design:
        if seed_start is not None:
            raise MinitxError("--design has its own seeds: leave out --seed-start.")
        wanted = runner.design_seeds(runner.QUICK_SEEDS if seeds is None and quick else seeds)
        out = out / runner.DESIGN_FOLDER
    elif seeds is None:
        wanted = runner.QUICK_SEEDS if quick else runner.DEFAULT_SEEDS
    else:
        wanted = seeds
    options = {
        "seeds": wanted,
        "seed_start": seed_start or 0,
        "jobs": jobs,
        "quick": quick,
        "overrides": _overrides(settings),
        "out": out,
        "fresh": fresh,
        "backend": backend,
    }
    return run_experiments(targets, options)


@app.command()
def power(
    name: Target,
    seeds: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of seeds to ask about.")
    ] = "5,10,20",
    design: Annotated[
        bool, typer.Option("--design", help="Judge by the runs of minitx run --design.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Where runs are stored.")] = Path("runs"),
    settings: Settings = [],  # noqa: B006
) -> int:
    """Tell from stored runs how many seeds each claim needs. Trains nothing.

    For each claim: how often would runs of so many seeds support it, and with how many would 95 %
    of them do so?
    """
    from minitx.cli.powering import show_power

    try:
        wanted = [int(part) for part in seeds.split(",")]
    except ValueError:
        raise MinitxError(
            f"--seeds takes whole numbers with commas between, such as 5,10,20, got {seeds!r}."
        ) from None
    return show_power(name, wanted, design, out, _overrides(settings))


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="FAMILY.NAME", help="Such as sinks.mine; writes mine.py here.")
    ],
) -> None:
    """Write an experiment of your own to start from: it runs, and says TODO where yours goes."""
    from minitx.cli.new import write_experiment

    path = write_experiment(name)
    typer.echo(f"Wrote {path}; have a first look with: minitx run {path} --quick")


@exercises_app.callback(invoke_without_command=True)
def exercises(
    context: typer.Context,
    folder: Annotated[Path, typer.Option(help="Where your exercises are.")] = Path(),
) -> None:
    """List the exercises, or start one."""
    if context.invoked_subcommand is None:
        from minitx.grading import commands

        typer.echo(commands.exercises_in_words(folder))


@exercises_app.command()
def start(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An exercise, or 'all'.")],
    folder: Annotated[Path, typer.Option(help="Where to put it.")] = Path(),
) -> None:
    """Copy the stub of an exercise; a file of yours is never overwritten."""
    from minitx.grading import commands

    for path in commands.start(name, folder):
        typer.echo(f"Wrote {path}; check it with: minitx grade {path.stem} {path}")


@app.command()
def grade(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="An exercise.")] = None,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="File or folder.")] = None,
    seed: Annotated[
        int, typer.Option(parser=_whole, metavar="N", help="Which inputs are drawn.")
    ] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Gradescope's format.")
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="A table of a whole class.")
    ] = None,
) -> int:
    """Check an exercise, a folder of them, or a class. Exit code 0: all passed; 1: not all."""
    from minitx.grading import commands

    return commands.run_grade(name, file, seed, json_file, csv_file)
