"""Spaces by name, by option, and by configuration folder."""

import pytest

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, NasBench1Shot1, make_space
from nas_lightning.spaces.registry import find_option


class Wider(DartsSpace):
    name = "wider"

    def __init__(self, nodes=2, width=1):
        super().__init__(nodes)
        self.width = width


class Forgetful(DartsSpace):
    name = "forgetful"

    def __init__(self, nodes=2, width=1):
        super().__init__(nodes)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "mine.yaml").write_text(f"space:\n  _target_: {__name__}.Wider\n  width: 3\n")
    return tmp_path


def test_spaces_are_found_by_name_and_by_option():
    assert make_space("nasbench1shot1", {"variant": 3}).variant == 3
    assert make_space("nasbench1shot1_s2").variant == 2
    assert make_space("nasbench1shot1_s2", {"variant": 3}).variant == 3
    assert type(make_space("nasbench1shot1_s1")) is NasBench1Shot1


def test_spaces_of_a_configuration_folder(folder):
    with pytest.raises(InputError, match=r"^Unknown space .*folders="):
        make_space("wider")
    assert make_space("wider", folders=[folder]).width == 1  # as a file has it, whatever the yaml says
    assert make_space("mine", folders=[folder]).width == 3
    assert make_space("wider", {"width": 5}, folders=[str(folder)]).settings == {"width": 5}
    assert find_option("wider", [folder]) == "mine"
    assert make_space("darts", folders=[folder]).nodes == 4


def test_custom_class_of_a_space():
    assert make_space("wider", {"width": 2}, space=Wider).width == 2
    with pytest.raises(InputError, match="The space must be 'darts', got 'wider'"):
        make_space("darts", space=Wider)


def test_yaml_without_a_space_is_named(folder):
    for target in ["os.system", "nowhere.Space", "nas_lightning.spaces.Network", "text"]:
        (folder / "space" / "mine.yaml").write_text(f"space:\n  _target_: {target}\n")
        with pytest.raises(InputError, match=r"mine\.yaml"):
            make_space("mine", folders=[folder])


def test_settings_that_do_not_fit():
    for settings in [
        {"nodes": 0},
        {"nodes": 10**9},
        {"ops": [["none"]]},
        {"ops": "none"},
        {"nodes": "two"},
        {"knots": 2},
        {"ops": 3},
    ]:
        with pytest.raises(InputError):
            make_space("darts", settings)


def test_an_argument_that_a_space_forgets_is_named():
    with pytest.raises(TypeError, match=r"Forgetful must keep its argument as self\.width"):
        _ = Forgetful().settings
