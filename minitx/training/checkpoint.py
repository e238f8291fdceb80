"""Checkpoints: all that a run needs to go on as if it had never stopped, in one file."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitx.errors import MinitxError
from minitx.nn.saving import read_npz, write_npz
from minitx.training.callbacks import Callback, State


@dataclass
class Checkpoint:
    """All that a run needs to go on, in one file."""

    path: str | os.PathLike
    state: State
    data_rng: np.random.Generator
    callbacks: list[Callback]
    settings: dict[str, Any]
    generators: dict[str, np.random.Generator] = field(init=False)

    def __post_init__(self) -> None:
        start = self.data_rng.bit_generator.state  # of the data stream: another seed, another run
        self.settings |= {"seed": hashlib.sha256(repr(start).encode()).hexdigest()[:16]}
        self.generators = {"data": self.data_rng, "callbacks": self.state.rng}
        drop = getattr(self.state.model, "drop", None)
        if drop is not None:
            self.generators["dropout"] = drop.rng

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.state.model, "optimizer": self.state.optimizer}
        return parts | {f"callback{i}": c for i, c in enumerate(self.callbacks)}

    def save(self) -> None:
        history = self.state.history
        arrays = {f"history/{n}": getattr(history, n) for n in ("loss", "lr", "grad_norm")}
        for part, thing in self._parts().items():
            arrays |= {f"{part}/{name}": array for name, array in thing.state_dict().items()}
        record = {
            "kind": "checkpoint",
            "step": self.state.step,
            "seconds": history.seconds,
            "settings": self.settings,
            "generators": {n: g.bit_generator.state for n, g in self.generators.items()},
        }
        write_npz(self.path, arrays, record)

    def resume(self) -> None:
        """Load the file if there is one."""
        if not os.path.exists(self.path):
            return
        arrays, record = read_npz(self.path, "checkpoint")
        if record.get("kind") != "checkpoint":
            raise MinitxError(f"{str(self.path)!r} is no checkpoint; choose another path.")
        stored, here = record["settings"], json.loads(json.dumps(self.settings))
        other = [
            f"{k} {stored.get(k)!r}, here {v!r}" for k, v in here.items() if stored.get(k) != v
        ]
        if other:
            raise MinitxError(
                f"{str(self.path)!r} belongs to another run ({'; '.join(other)}); delete it, or "
                "choose another path."
            )
        for part, thing in self._parts().items():
            start = f"{part}/"
            thing.load_state_dict(
                {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
            )
        history = self.state.history
        for name in ("loss", "lr", "grad_norm"):
            getattr(history, name)[...] = arrays[f"history/{name}"]
        history.seconds = record["seconds"]
        self.state.step = record["step"]
        self.state.loss = history.loss[self.state.step - 1] if self.state.step else np.nan
        for name, generator in self.generators.items():
            generator.bit_generator.state = record["generators"][name]
