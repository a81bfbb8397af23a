"""How probable the members of SVGD-RD are, by the width of its Gaussians."""

import pytest

from nas_lightning.spaces import DartsSpace, NasBench201
from reproductions.nesbs import ParticleWidths


@pytest.mark.parametrize("space", [NasBench201(), DartsSpace(nodes=2)])
def test_a_single_particle_is_the_most_probable_architecture(space):
    """Proposition 5.2, for either width and any δ."""
    study = ParticleWidths(spreads=[2.0], deltas=[-1.0, 0.0, 1.0], size=1, posteriors=4)
    for row in study.run(space).tables[0].rows:
        mode, *found, fall = row[2:]
        assert all(one.value == pytest.approx(mode.value) for one in found)
        assert fall.value == pytest.approx(0, abs=1e-5)


def test_wider_gaussians_and_larger_deltas_find_less_probable_sets():
    """Where logits are far apart, as with a trained posterior."""
    study = ParticleWidths(spreads=[5.0], deltas=[0.0, 1.0], size=5, posteriors=6, steps=500)
    narrow, wide = study.run(DartsSpace(nodes=3)).tables[0].rows
    assert (narrow[1], wide[1]) == ("operations", "candidates")
    assert narrow[2] == wide[2]
    for row in (narrow, wide):
        assert row[2].value > row[3].value  # of distinct members most are not the mode
    assert narrow[3].value > wide[3].value
    assert narrow[5].value == pytest.approx(narrow[3].value - narrow[4].value, abs=1e-4)
    assert narrow[5].value > 0
