"""Two processes share a user's own data: they come to what one does with batches of twice the size."""

import pytest
import torch

from tests.strategies.fit_own_data_as_process import FORMS, STOP
from tests.strategies.test_processes import WHO, fit

KINDS = ("search", "training")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By form: for each (world, rank) what it came to."""
    folder = tmp_path_factory.mktemp("own_data")
    fit(folder, list(FORMS), "tests.strategies.fit_own_data_as_process")
    return {
        form: {who: torch.load(folder / "{}_{}_{}".format(number, *who)) for who in WHO}
        for number, form in enumerate(FORMS)
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_two_come_to_what_one_does(form, kind, results):
    alone, first, second = (results[form][who][kind] for who in WHO)
    for name, value in alone["whole"].items():
        assert torch.equal(first["whole"][name], second["whole"][name]), name
        torch.testing.assert_close(first["whole"][name], value, rtol=1e-9, atol=1e-12)
    assert first["whole metrics"] == second["whole metrics"]
    assert first["whole metrics"] == pytest.approx(alone["whole metrics"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_no_image_is_seen_twice_and_none_is_left_out(form, kind, results):
    alone, first, second = (results[form][who][kind]["whole images"] for who in WHO)
    assert len(alone) == len(first) == len(second) == 8
    for one, two, whole in zip(first, second, alone, strict=True):
        assert torch.equal(torch.cat([one, two]).sort()[0], whole.sort()[0])
    assert len(torch.cat(alone[:4]).unique()) == 32


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_goes_on_within_an_epoch_comes_to_the_same_bits(form, kind, who, results):
    end = results[form][who][kind]
    assert len(end["resumed images"]) == 8 - STOP
    assert all(map(torch.equal, end["resumed images"], end["whole images"][STOP:]))
    for name, value in end["whole"].items():
        assert torch.equal(end["resumed"][name], value), name
    before, after = end["whole metrics"], end["resumed metrics"]
    names = set(before)
    if who[0] > 1:  # of the interrupted epoch's means a checkpoint has the first process' part
        names = {name for name in names if kind == "training" and name.startswith("val")}
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
