"""The modules of a space of NAS-Bench-1Shot1, against architectures that the space draws."""

from nas_lightning.spaces import NasBench1Shot1, NasBench101
from nas_lightning.spaces.nasbench1shot1 import PARENTS
from reproductions.measurements.one_shot_modules import hashes, wirings


def test_samples_of_a_space_are_among_its_modules(generator):
    known = set(hashes(PARENTS[1]))
    space = NasBench1Shot1(1)
    drawn = {space.hash(space.sample(generator)) for _ in range(100)}
    assert len(drawn) > 50
    assert drawn <= known


def test_not_every_module_of_nasbench101_is_in_a_space(generator):
    known, space = set(hashes(PARENTS[1])), NasBench101()
    assert not known >= {space.hash(space.sample(generator)) for _ in range(50)}


def test_wirings_are_pruned_and_distinct():
    found = wirings(PARENTS[2])
    assert len(found) == len(set(found))
    assert all(sum(row) for matrix in found for row in matrix[:-1])
    assert all(sum(row[vertex] for row in matrix) for matrix in found for vertex in range(1, len(matrix)))
