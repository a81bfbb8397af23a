"""NASI's samples, kept: the step that they give is that of the search itself, whatever ν and μ."""

import pytest
import torch

from nas_lightning.strategies.nasi import Nasi
from reproductions.nasi import TraceSamples, draw_samples, trace_step

STEPS = 6
OPTIONS = {"computed": "sampled", "seed": 3}


def samples_of(space, supernet, images, path, steps=STEPS) -> TraceSamples:
    strategy = Nasi(space, supernet(space), images, nu=1.0, **OPTIONS)
    return draw_samples(strategy, images, path, steps=steps, batch_size=16, settings={})


@pytest.mark.parametrize(
    ("mu", "share", "adaptive"), [(2.0, 0.5, False), (0.5, 0.5, False), (2.0, 0.3, True)]
)
def test_the_step_is_that_of_the_search(mu, share, adaptive, cell_space, supernet, data, trainer, tmp_path):
    """Batches of all images: a search sees the same as the samples, in another order."""
    images = data(batch_size=16)
    samples = samples_of(cell_space, supernet, images, tmp_path / "samples.csv")
    nu = float(samples.traces.quantile(share))
    search = Nasi(cell_space, supernet(cell_space), images, nu=nu, mu=mu, adaptive=adaptive, **OPTIONS)
    trainer(STEPS).fit(search, images)
    step = trace_step(samples, mu, nu, adaptive=adaptive).float()
    assert float(step.norm()) > 0
    torch.testing.assert_close(step.view(6, 5), search.arch["cell"].detach(), rtol=1e-3, atol=1e-5)
    others = trace_step(samples, mu, float(samples.traces.max()), adaptive=adaptive).float()
    assert not torch.allclose(others, step)


def test_saved_samples_are_not_drawn_again(cell_space, supernet, data, tmp_path, monkeypatch):
    images = data(batch_size=16)
    whole = samples_of(cell_space, supernet, images, tmp_path / "whole.csv")
    samples_of(cell_space, supernet, images, tmp_path / "part.csv", steps=2)
    drawn = []
    original = Nasi.trace_slopes
    monkeypatch.setattr(Nasi, "trace_slopes", lambda self, *batch: drawn.append(1) or original(self, *batch))
    rest = samples_of(cell_space, supernet, images, tmp_path / "part.csv")
    assert len(drawn) == STEPS - 2
    for one, other in zip(rest, whole, strict=True):
        torch.testing.assert_close(one, other)


def test_the_step_by_hand():
    """Three samples in one decision: G = 1, −2 (above ν), 4; largest norms 1, 2, 4."""
    samples = TraceSamples(torch.tensor([1.0, 9.0, 2.0]), torch.tensor([[1.0], [2.0], [4.0]]))
    assert trace_step(samples, mu=2.0, nu=5.0).tolist() == [pytest.approx((1 - 1 + 1) / 3)]
    # ν_t = 3/1, (3 + 1)/2, (3 + 1 + 9)/3
    assert trace_step(samples, mu=2.0, nu=3.0, adaptive=True).tolist() == [pytest.approx(1 / 3)]
    assert trace_step(samples, mu=2.0, nu=0.5, adaptive=True).tolist() == [pytest.approx((-1 - 1 + 1) / 3)]
