"""What an experiment is: a question, arms, one measurement, claims, a figure.

A whole experiment, as it stands in a file of its own:

.. code-block:: python

    @dataclass(frozen=True)
    class Settings:
        sides: int = 6
        rolls: int = 1000

    @register
    class Dice(Experiment):
        name = "games.dice"
        question = "Does a die with more sides roll higher?"
        mechanism = "The mean of 1..n is (n + 1) / 2."
        source = "Cardano (1564)"
        measured = {"mean": "mean number of eyes over all rolls"}
        seconds = 1.0
        Settings = Settings
        arms = {"twenty": arm(sides=20), "six": arm(sides=6, control=True)}
        claims = [at_least("mean", 5.0, arm="twenty", minus="six", text="Twenty roll higher.")]
        quick = {"rolls": 50}

        def measure(self, settings, seed):
            rng = np.random.default_rng(seed)
            return {"mean": rng.integers(1, settings.sides + 1, settings.rolls).mean()}

        def draw(self, results):
            fig, ax = figure()
            ...
            return fig
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from minitx.errors import MinitxError, choose, unknown
from minitx.lab.claims import Claim
from minitx.lab.results import Results
from minitx.lab.settings import check_keys, parse_overrides, replace

NAME = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
SECONDS_ARE_FOR = 5  # seeds


@dataclass(frozen=True)
class Arm:
    """One condition: the settings that it pins, and whether it is a control."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    control: bool = False
    text: str = ""


def arm(*, control: bool = False, text: str = "", **overrides: Any) -> Arm:
    """An arm that pins these fields of the experiment's ``Settings``.

    Parameters
    ----------
    control : bool
        True for an arm in which the effect must vanish.
    text : str
        What the arm is for, in words.
    **overrides
        Fields of ``Settings`` with the arm's values.
    """
    return Arm(overrides, control, text)


@dataclass(frozen=True)
class NoSettings:
    """For experiments without knobs."""


class Experiment:
    """Base class; the module's docstring has an example.

    Attributes
    ----------
    name : str
        ``"family.short"``, lower case.
    question, mechanism, source : str
        One line; a few plain sentences; who found it (author, year).
    measured : dict
        Name of each measure -> one sentence with unit or formula.
    seconds : float
        Expected wall time of a run of `SECONDS_ARE_FOR` = 5 seeds on 2 cores.
    Settings : frozen dataclass
        Every knob, with its default.
    arms : dict
        Name -> `arm`.
    claims : list of Claim
    quick : dict
        Settings of a shorter run (``--quick``). Arms keep what they pin.
    """

    name: ClassVar[str] = ""
    question: ClassVar[str] = ""
    mechanism: ClassVar[str] = ""
    source: ClassVar[str] = ""
    measured: ClassVar[Mapping[str, str]] = {}
    seconds: ClassVar[float] = 60.0
    Settings: ClassVar[type] = NoSettings
    arms: ClassVar[Mapping[str, Arm]] = {}
    claims: ClassVar[list[Claim]] = []
    quick: ClassVar[Mapping[str, Any]] = {}

    def measure(self, settings: Any, seed: int) -> dict[str, Any]:
        """One run: named numbers, and small arrays for the figure.

        All randomness comes from ``seed`` (``numpy.random.default_rng(seed)``): the same settings
        and seed give the same numbers. Runs of different arms with one seed form a pair.
        """
        raise NotImplementedError(f"{type(self).__name__}.measure(settings, seed)")

    def draw(self, results: Results) -> Any:
        """A Matplotlib ``Figure`` over all runs. ``results.claims`` holds the verdicts."""
        raise NotImplementedError(f"{type(self).__name__}.draw(results)")

    def example(self, rng: np.random.Generator) -> str | None:
        """One example of the task in words, the answer marked **like this**; None: no example."""
        return None

    def expected_seconds(self, seeds: int) -> float:
        """Expected wall time of a run of that many seeds on 2 cores."""
        return self.seconds * seeds / SECONDS_ARE_FOR

    @property
    def family(self) -> str:
        """The part of the name before the dot."""
        return self.name.split(".")[0]

    def settings(
        self, overrides: Mapping[str, Any] | None = None, quick: bool = False
    ) -> dict[str, Any]:
        """The settings of every arm: defaults, then ``quick``, then overrides, then the arm's pins.

        Parameters
        ----------
        overrides : dict
            Field -> value; strings are parsed by the field's type (as ``--set`` gives them).

        Raises
        ------
        MinitxError
            For an unknown key, a value that does not fit its type, or a key that every arm pins.
        """
        overrides = parse_overrides(self.Settings, overrides or {}, self.name)
        for key in overrides:
            if all(key in each.overrides for each in self.arms.values()):
                pins = ", ".join(f"{n}: {a.overrides[key]!r}" for n, a in self.arms.items())
                raise MinitxError(
                    f"{key!r} of {self.name} cannot be set: every arm has its own value ({pins})."
                )
        base = replace(self.Settings(), {**(self.quick if quick else {}), **overrides}, self.name)
        return {
            name: replace(base, each.overrides, f"{self.name} (arm {name})")
            for name, each in self.arms.items()
        }


registry: dict[str, type[Experiment]] = {}


def register(cls: type[Experiment]) -> type[Experiment]:
    """Class decorator: check the experiment and make it known by its name.

    Raises
    ------
    MinitxError
        If the definition does not hold together, or the name is taken by another module.
    """
    validate(cls)
    taken = registry.get(cls.name)
    if taken is not None and taken.__module__ != cls.__module__:
        raise MinitxError(
            f"An experiment named {cls.name!r} is already registered by {taken.__module__}; "
            f"give the one in {cls.__module__} another name."
        )
    registry[cls.name] = cls
    return cls


def find(name: str) -> Experiment:
    """An instance of the registered experiment of that name.

    Raises
    ------
    MinitxError
        If there is none; the nearest names are suggested.
    """
    return choose(registry, name, "experiment")()


@contextmanager
def collecting() -> Iterator[dict[str, type[Experiment]]]:
    """Gather what is registered inside, and leave the registry as it was.

    A user's copy of one of our experiments may so keep its name.
    """
    before = dict(registry)
    registry.clear()
    found: dict[str, type[Experiment]] = {}
    try:
        yield found
    finally:
        found.update(registry)
        registry.clear()
        registry.update(before)


def validate(experiment: Experiment | type[Experiment]) -> None:
    """Check that name, settings, arms, claims and measures fit together.

    Raises
    ------
    MinitxError
        Naming the experiment and the first thing that does not fit.
    """
    cls = experiment if isinstance(experiment, type) else type(experiment)

    def require(condition: object, message: str) -> None:
        if not condition:
            raise MinitxError(f"Experiment {cls.name or cls.__name__}: {message}")

    require(
        NAME.fullmatch(cls.name), f"the name is 'family.short' in lower case, got {cls.name!r}."
    )
    require(cls.question.strip(), "say in one line what its question is.")
    require("\n" not in cls.question.strip(), "the question is one line.")
    settings: Any = cls.Settings
    is_settings = isinstance(settings, type) and dataclasses.is_dataclass(settings)
    require(
        is_settings and settings.__dataclass_params__.frozen,
        "Settings is a frozen dataclass whose fields all have defaults.",
    )
    try:
        cls.Settings()
    except TypeError as error:
        require(False, f"every field of Settings has a default ({error}).")
    require(cls.arms, "there must be at least one arm.")
    for name, each in cls.arms.items():
        require(isinstance(each, Arm), f"arm {name!r} is made with arm(...), got {each!r}.")
        check_keys(cls.Settings, each.overrides, f"{cls.name} (arm {name})")
    check_keys(cls.Settings, cls.quick, f"{cls.name} (quick)")
    require(cls.claims, "there must be at least one claim: what would show that you are wrong?")
    ids = [claim.id for claim in cls.claims]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    require(not twice, f"two claims have the id {twice}; give one of them id='...'.")
    for claim in cls.claims:
        for name in filter(None, (claim.arm, claim.minus)):
            if name not in cls.arms:
                raise unknown(f"{cls.name} (claim {claim.id}) arm", name, cls.arms)
        require(
            claim.measure in cls.measured,
            f"claim {claim.id!r} is about {claim.measure!r}; say in `measured` what that is "
            f"(known: {', '.join(cls.measured) or 'none'}).",
        )
    require(cls.measure is not Experiment.measure, "measure(self, settings, seed) is missing.")
