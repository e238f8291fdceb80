"""What the command line prints: lists, descriptions and verdicts, legible at 80 columns."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import ASCII, SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from minitx.lab import ClaimResult, Experiment, Outcome
from minitx.lab.runner import DEFAULT_SEEDS

# Colour never speaks alone: each verdict has its word and its sign.
STYLES = {
    "supported": "green",
    "refuted": "bold red",
    "inconclusive": "yellow",
    "failed": "bold red",
}
SIGNS = {"supported": "✓", "refuted": "✗", "inconclusive": "?", "failed": "!"}
PLAIN_SIGNS = {"supported": "+", "refuted": "x", "inconclusive": "?", "failed": "!"}


class _Trimmed:
    """A stream that is no terminal, without the blanks with which Rich fills up lines."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(re.sub(r"[ \t]+(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def console(stderr: bool = False) -> Console:
    """A console on which square brackets are just brackets."""
    stream: Any = sys.stderr if stderr else sys.stdout
    file: Any = stream if stream.isatty() else _Trimmed(stream)
    return Console(file=file, markup=False, highlight=False, emoji=False)


def plain(out: Console) -> bool:
    """True where the terminal cannot show signs beyond ASCII."""
    return not (out.encoding or "").lower().startswith("utf")


def number(value: float | None) -> str:
    """Three digits that count."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:.0f}"
    if size and size < 0.001:
        return f"{value:.1e}".replace("e-0", "e-")
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """``45 s``, ``2 min 10 s``, ``1 h 20 min``."""
    if seconds < 9.5:
        return f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s".removesuffix(" 00 s")
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min".removesuffix(" 00 min")


def verdict_text(word: str, out: Console) -> Text:
    """Sign, word and colour of a verdict."""
    sign = (PLAIN_SIGNS if plain(out) else SIGNS)[word]
    return Text(f"{sign} {word}", style=STYLES[word], no_wrap=True)


def listing(out: Console, experiments: list[Experiment]) -> None:
    """Name, question and time of each experiment, by family."""
    table = new_table(out)
    table.add_column("experiment", no_wrap=True)
    table.add_column("question", ratio=1)
    table.add_column("time", justify="right", no_wrap=True)
    for index, each in enumerate(experiments):
        time = duration(each.expected_seconds(DEFAULT_SEEDS))
        table.add_row(each.name, each.question.strip(), time)
        table.rows[-1].end_section = (
            index + 1 < len(experiments) and experiments[index + 1].family != each.family
        )
    out.print(table)
    words = f"Times are for {DEFAULT_SEEDS} seeds on 2 cores. "
    out.print(f"{words}minitx show NAME tells more; minitx run NAME runs it.", style="dim")


def description(out: Console, experiment: Experiment) -> None:
    """Everything that an experiment says of itself; nothing is run."""
    out.print(Text(experiment.name, style="bold"))
    _paragraph(out, "Question", experiment.question)
    _paragraph(out, "Mechanism", experiment.mechanism)
    example = experiment.example(np.random.default_rng(0))
    if example:
        _paragraph(out, "Example", "")
        out.print(Padding(_marked(example), (0, 0, 0, 2)))
    _pairs(out, "What is measured", experiment.measured)
    arms: dict[str, str] = {}
    for name, arm in experiment.arms.items():
        pins = ", ".join(f"{key}={value}" for key, value in arm.overrides.items())
        words = [arm.text.strip(), f"({pins})" if pins else "(the settings below)"]
        arms[name] = " ".join(filter(None, ["control:" if arm.control else "", *words]))
    _pairs(out, "Arms", arms)
    claims = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    claims.add_column(no_wrap=True)
    claims.add_column(ratio=1)
    for claim in experiment.claims:
        which = f"{claim.arm} minus {claim.minus}" if claim.minus else claim.arm
        exact = f"{claim.measure} ({which}) {_symbol(claim, out)} {claim.threshold:g}"
        text = Text(claim.text)
        if exact not in claim.text:
            text.append(f"  [{exact}]", style="dim")
        claims.add_row("control" if claim.control else "effect", text)
    _paragraph(out, "Claims", "")
    out.print(Padding(claims, (0, 0, 0, 2)))
    settings = experiment.Settings()
    quick = experiment.quick
    knobs = {
        field.name: f"{getattr(settings, field.name)!r}"
        + (f"  (--quick: {quick[field.name]!r})" if field.name in quick else "")
        for field in dataclasses.fields(settings)
    }
    _pairs(out, "Settings (--set key=value)", knobs)
    _paragraph(out, "Source", experiment.source)
    time = duration(experiment.expected_seconds(DEFAULT_SEEDS))
    _paragraph(out, "Time", f"about {time} for {DEFAULT_SEEDS} seeds on 2 cores")


def claims_table(out: Console, outcome: Outcome) -> None:
    """Claims with estimate, interval, threshold and verdict; effects first, then controls."""
    results = outcome.results
    title = f"{results.name}: seeds {seed_range(results.seeds)}, {duration(outcome.seconds)}"
    out.print()
    out.print(Text(title, style="bold"))
    if results.quick:
        out.print("A quick run: its verdicts are a first look only.", style="yellow")
    table = new_table(out)
    table.add_column("", no_wrap=True)
    table.add_column("claim", ratio=1)
    table.add_column("estimate\n95 % interval", justify="right", no_wrap=True)
    table.add_column("threshold", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    ordered = sorted(results.claims, key=lambda each: each.claim.control)
    for each in ordered:
        claim, between = each.claim, " .. " if plain(out) else " … "
        text = Text(claim.text)
        if each.note:
            text.append(f" ({each.note})", style="dim")
        interval = "" if each.low is None else f"\n{number(each.low)}{between}{number(each.high)}"
        table.add_row(
            Text("control", style="cyan") if claim.control else Text("effect"),
            text,
            number(each.estimate) + interval,
            f"{_symbol(claim, out)} {claim.threshold:g}",
            verdict_text(each.verdict, out),
        )
    out.print(table)
    if outcome.figure is not None:
        _path(out, "Figure", outcome.figure)
    for error in outcome.errors:
        out.print(Text(f"failed  {error}", style=STYLES["failed"]))


def summary_table(out: Console, rows: list[tuple[str, str, Outcome | str]]) -> None:
    """One line for each experiment: question, verdicts, seconds.

    Parameters
    ----------
    rows : list of (name, question, outcome)
        The outcome is a sentence where the experiment could not be run.
    """
    out.print()
    quick = any(not isinstance(o, str) and o.results.quick for _, _, o in rows)
    title = "All experiments" + (" (a quick run: a first look only)" if quick else "")
    out.print(Text(title, style="bold"))
    table = new_table(out)
    table.add_column("experiment", no_wrap=True)
    table.add_column("question", ratio=1)
    table.add_column("claims", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for name, question, outcome in rows:
        if isinstance(outcome, str):
            table.add_row(name, f"{question} {outcome}".strip(), verdict_text("failed", out), "")
            continue
        lines = [
            Text(f"{count} of {len(outcome.results.claims)} ").append_text(verdict_text(word, out))
            for word, count in tally(outcome.results.claims).items()
        ]
        if outcome.errors:
            lines.append(verdict_text("failed", out).append(f" {len(outcome.errors)}"))
        table.add_row(name, question, Text("\n").join(lines), duration(outcome.seconds))
    out.print(table)


def tally(claims: list[ClaimResult]) -> dict[str, int]:
    """How many claims have each verdict, those that none has left out."""
    counts = {word: sum(each.verdict == word for each in claims) for word in STYLES}
    return {word: count for word, count in counts.items() if count}


def new_table(out: Console) -> Table:
    """An empty table in the house style."""
    box = ASCII if plain(out) else SIMPLE_HEAD
    return Table(box=box, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def _symbol(claim, out: Console) -> str:
    return {"≥": ">=", "≤": "<="}[claim.symbol] if plain(out) else claim.symbol


def _path(out: Console, label: str, path: Path) -> None:
    # Not wrapped: a path that is broken over two lines cannot be clicked or copied.
    out.print(f"{label}  {path}", soft_wrap=True)


def seed_range(seeds: tuple[int, ...]) -> str:
    """``0-9`` for neighbours, else ``0, 3, 7``."""
    if len(seeds) > 2 and seeds == tuple(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))


def _paragraph(out: Console, heading: str, text: str) -> None:
    if heading and (text.strip() or heading in ("Example", "Claims")):
        out.print()
        out.print(Text(heading, style="bold"))
    if text.strip():
        out.print(Padding(Text(" ".join(text.split())), (0, 0, 0, 2)))


def _pairs(out: Console, heading: str, pairs) -> None:
    if not pairs:
        return
    out.print()
    out.print(Text(heading, style="bold"))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=max(map(len, pairs)) <= 28, style="cyan")
    table.add_column(ratio=1)
    for name, words in pairs.items():
        table.add_row(name, Text(" ".join(str(words).split())))
    out.print(Padding(table, (0, 0, 0, 2)))


def _marked(text: str) -> Text:
    """The example with its ``**answer**`` in bold; the stars stay, for those who see no bold."""
    marked = Text(text.rstrip())
    for match in re.finditer(r"\*\*.+?\*\*", text, flags=re.DOTALL):
        marked.stylize("bold green", *match.span())
    return marked
