"""What a Gaussian process proposes next, fitted anew to all that was seen, so that it has no state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Box = Mapping[str, tuple[float, float]]
"""The ends of each parameter."""


def suggest(seen: Iterable[tuple[Mapping[str, float], float]], box: Box, seed: int) -> dict[str, float]:
    """Parameters in the box where the value, the larger the better, is expected to improve most.

    >>> seen = [({"x": 0.1}, 1.0), ({"x": 0.9}, 3.0), ({"x": 0.5}, 2.0)]
    >>> suggest(seen, {"x": (0.0, 1.0)}, seed=0)["x"] > 0.5
    True
    """
    import optuna
    from optuna.distributions import FloatDistribution
    from optuna.trial import create_trial

    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        sampler = optuna.samplers.GPSampler(seed=seed % 2**32, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {name: FloatDistribution(*ends) for name, ends in box.items()}
        for parameters, value in seen:
            trial = create_trial(params=dict(parameters), distributions=dict(distributions), value=value)
            study.add_trial(trial)
        return dict(study.ask(dict(distributions)).params)
    finally:
        optuna.logging.set_verbosity(loudness)
