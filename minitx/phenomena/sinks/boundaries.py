"""Where does the sink stop, and where does its cure?

``sinks.emergence`` holds in one small setting. Here the setting is changed, one choice at a time,
with softmax and with softmax1, which removes the sink in that setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minitx import plots
from minitx.interp.scores import first_token_share, value_drain
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import mean, rows
from minitx.phenomena.recipe import train
from minitx.phenomena.sinks._recipe import SinkSettings, sink_head

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results

# What is changed in the setting of sinks.emergence.
PLACES: dict[str, dict[str, Any]] = {
    "recipe": {},
    "no_norm_bias": {"norm_bias": False},
    "mlp": {"mlp": "gelu"},
    "learned": {"positions": "learned"},
    "learned_mlp": {"positions": "learned", "mlp": "gelu"},
}
NAMES = {
    "recipe": "as in sinks.emergence",
    "no_norm_bias": "no bias in the norms",
    "mlp": "with an MLP",
    "learned": "learned positions",
    "learned_mlp": "learned positions, MLP",
}


@register
class Boundaries(Experiment):
    """A map: softmax and softmax1 in five settings. Most of it is measured, little is claimed."""

    name = "sinks.boundaries"
    question = "Where does softmax1 stop curing the sink, and where is there no sink to cure?"
    mechanism = (
        "Softmax1 makes parking needless: a head may spend nothing. It does not forbid parking. With "
        "positions that are learned and an MLP that can correct what a head adds, a head may look "
        "at the first token all the same. And parking is cheap only where the first token's value "
        "can be made small: a norm's bias helps to put it there."
    )
    source = (
        "Guo et al. (2024), Active-Dormant Attention Heads; Miller (2023), Attention Is Off By One; "
        "the map is our own"
    )
    seconds = 160.0
    Settings = SinkSettings
    quick = {"steps": 200, "eval_sequences": 32}

    arms = {
        f"{attention}_{place}": arm(
            attention=attention,
            **changes,
            control=(attention, place) == ("softmax1", "recipe"),
            text=f"{attention}, {NAMES[place]}",
        )
        for place, changes in PLACES.items()
        for attention in ("softmax", "softmax1")
    }

    measured = {
        "idle_share": "attention on the first token: mean over non-trigger queries t ≥ 1 of "
        "A[t, 0], 0 to 1",
        "drain": "‖v_first‖ / mean ‖v_other‖; 1 = as large as the others",
        "copy_accuracy": "share of triggers after which the copied token is the top prediction",
        "excess_loss": "loss at normal tokens minus the entropy of their bigram rows, nats a token",
    }

    claims = [
        at_least("idle_share", 0.6, arm="softmax_recipe", text="Softmax parks on the first token"),
        at_most(
            "idle_share", 0.05, arm="softmax1_recipe", control=True, text="Softmax1 removes it here"
        ),
        at_least(
            "idle_share",
            0.5,
            arm="softmax1_learned_mlp",
            text="With learned positions and an MLP softmax1 parks too",
        ),
        at_least(
            "idle_share",
            0.1,
            arm="softmax_recipe",
            minus="softmax_no_norm_bias",
            text="Without a bias in the norms softmax parks less",
        ),
    ]

    def measure(self, settings: SinkSettings, seed: int) -> dict[str, Any]:
        """Train one model and look at its head on fresh sequences."""
        task = settings.task(seed)
        model, rng = train(task, settings, seed)
        batch = task.sample(settings.eval_sequences, rng)
        trigger, normal = batch.info["trigger"], batch.info["normal"]
        seen = sink_head(model, batch)
        return {
            "idle_share": first_token_share(seen.weights, rows=~trigger)[0],
            "drain": value_drain(seen.values)[0],
            "copy_accuracy": (seen.predicted == batch.targets)[trigger].mean(),
            "excess_loss": (seen.losses - task.entropy()[batch.tokens])[normal].mean(dtype=float),
        }

    def draw(self, results: Results) -> Figure:
        """The share on the first token in every setting, softmax beside softmax1."""
        fig, axes = plots.figure(ncols=2, size=(11.0, 4.2), sharey=True)
        for ax, attention in zip(axes, ("softmax", "softmax1"), strict=True):
            places = {f"{attention}_{place}": words for place, words in NAMES.items()}
            looks = dict.fromkeys(places, "treatment" if attention == "softmax" else "control")
            rows(ax, results, "idle_share", places, names=places, looks=looks, title=attention,
                 limits=(-0.03, 1.03), x="share of attention on the first token")  # fmt: skip
        cured, not_cured = (
            mean(results, f"softmax1_{place}", "idle_share") for place in ("recipe", "learned_mlp")
        )
        plots.suptitle(
            fig,
            f"Softmax1 leaves {cured:.0%} on the first token in our setting, "
            f"{not_cured:.0%} with learned positions and an MLP",
        )
        return fig
