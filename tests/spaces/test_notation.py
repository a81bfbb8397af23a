"""Every notation, intact and damaged: a genotype, or one line that says what was expected; nothing runs."""

import json
import os
import random

import pytest

from nas_lightning.errors import InputError
from nas_lightning.spaces import DartsSpace, NasBench201

SPACES = {"darts": DartsSpace(), "nasbench201": NasBench201()}
DARTS = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('skip_connect', 1), ('dil_conv_5x5', 2), ('max_pool_3x3', 0)],"
    " normal_concat=range(2, 4), reduce=[('avg_pool_3x3', 0), ('none', 1), ('sep_conv_5x5', 0),"
    " ('skip_connect', 2)], reduce_concat=[2, 3])"
)
ARCH = "|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|+|skip_connect~0|avg_pool_3x3~1|nor_conv_3x3~2|"
JSON = {
    "darts": json.dumps(SPACES["darts"].parse(DARTS).to_dict()),
    "nasbench201": json.dumps(SPACES["nasbench201"].parse(ARCH).to_dict()),
}
TEXTS = {"darts": DARTS, "nasbench201": ARCH}

INJECTIONS = [
    "__import__('os').system('true')",
    "Genotype(normal=__import__('os').system('true'))",
    "Genotype(normal=[(__import__('os').system('true'), 0)] * 2, reduce=[])",
    "Genotype(**__import__('os').environ)",
    "Genotype(*[__import__('os').system('true')])",
    "Genotype(normal=[('skip_connect', (lambda: __import__('os').system('true'))())] * 2)",
    "Genotype(normal=list(map(__import__('os').system, ['true'])))",
    "Genotype(normal=range(__import__('os').system('true')))",
    "Genotype(normal=[x for x in [__import__('os').system('true')]])",
    f"{DARTS}; __import__('os').system('true')",
    f"{DARTS}\n__import__('os').system('true')",
    f"({DARTS}, __import__('os').system('true'))",
    f"__import__('os').system('true') or {DARTS}",
    f"({DARTS}).__class__.__subclasses__()",
    "import os; os.system('true')",
    "exec('import os')",
    'f\'{__import__("os").system("true")}\'',
    "|__import__('os').system('true')~0|+|none~0|none~1|+|none~0|none~1|none~2|",
    "{\"arch\": \"__import__('os').system('true')\"}",
    "!!python/object/apply:os.system ['true']",
]
GARBAGE = [
    "",
    " \n\t",
    "\0",
    "Genotype",
    "Genotype()",
    "Genotype(normal=[], reduce=[])",
    "Genotype(normal=[('skip_connect', 0)], reduce=[('skip_connect', 0)])",
    "Genotype(normal=range(10**12))",
    "Genotype(normal=range(1000000000000))",
    f"Genotype(normal=range({10**40}), reduce=range(-{10**40}, {10**40}))",
    "Genotype(normal=range(0, 5, 0))",
    "Genotype(normal=list())",
    f"Genotype(normal=[('skip_connect', {'9' * 5000})] * 2)",
    f"Genotype(normal=[('skip_connect', 0x{'f' * 5000}), ('skip_connect', 0)], reduce=[])",
    "Genotype(normal=" + "[" * 5000 + "]" * 5000 + ")",
    "Genotype(normal=" + "-" * 5000 + "1)",
    "Genotype" + "()" * 5000,
    "1" + "+1" * 20_000,
    "{" * 5000,
    '{"cells":' * 50_000,
    '{"cells": ' + "9" * 5000 + "}",
    '{"cells": {}}',
    '{"cells": {"cell": null}}',
    '{"cells": []}',
    "[]",
    "null",
    '"text"',
    "{}",
    "{'normal': 1}",
    '{"arch": null}',
    '{"arch": {"arch": []}}',
    "|none~0|+|none~0|none~1|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~3|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~٢|",
    "|none~0|+|none~0|none~1|+|none~0|none~1|none~" + "9" * 5000 + "|",
    "|" * 10_000 + "~" * 10_000,
    "\ud800\udfff",
    "Genotype(normal=[('\\ud800', 0), ('a\\d', 0)], reduce=[])",
    "Génötype(ñormal=[])",
    "\u202eGenotype(normal=[])",
    "💥" * 300,
]
NOT_TEXT = [None, 5, 1.5, True, [], [1], (), object(), b"Genotype()", {1, 2}, {}, {1: 2}, {None: []}]
VALUES = [
    None,
    -1,
    2**70,
    10**5000,
    0.5,
    float("nan"),
    True,
    "",
    "\ud800",
    [],
    [[[]]],
    {},
    {"a": 1},
    [None, None],
]


@pytest.fixture(autouse=True)
def _nothing_runs(monkeypatch):
    def ran(*_):
        pytest.fail("the text was evaluated")

    monkeypatch.setattr(os, "system", ran)


def damaged(text, count, seed):
    """Seeded damage: the text cut, a piece removed, doubled or replaced by characters of all kinds."""
    random_ = random.Random(seed)
    strange = "()[]{}'\",:|~+0129 \n\0\\é💥\u2028\ud800"
    for _ in range(count):
        a, b = sorted(random_.choices(range(len(text) + 1), k=2))
        filling = "".join(random_.choices(strange, k=random_.randint(1, 4)))
        yield random_.choice(
            [text[:a], text[b:], text[:a] + text[b:], text[:b] + text[a:], text[:a] + filling + text[a + 1 :]]
        )


def places(value, path=()):
    """The paths of everything inside nested containers."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from places(item, (*path, key))


def spoiled(text):
    """The mapping in the JSON text, with each of its values in turn replaced by one of another kind."""
    for path in list(places(json.loads(text))):
        for value in VALUES:
            data = json.loads(text)
            target = data
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
            yield data


def check(space, cases, refusal):
    """Count the refused; what is accepted must be a genotype of the space that writes and reads as itself."""
    refused = 0
    for case in cases:
        if refusal(space.parse, case) is not None:
            refused += 1
        else:
            genotype = space.parse(case)
            space.check(genotype)
            assert space.parse(space.notation(genotype)) == genotype, case
    return refused


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize("text", INJECTIONS)
def test_code_is_refused_and_never_runs(space, text, refusal):
    assert refusal(space.parse, text)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_garbage_is_refused(space, refusal):
    cases = [*GARBAGE, *NOT_TEXT]
    assert check(space, cases, refusal) == len(cases)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_damaged_texts(space, refusal):
    for text in (TEXTS[space.name], JSON[space.name]):
        refused = check(space, damaged(text, 400, seed=1), refusal)
        assert refused >= 250


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_mappings_with_values_of_other_kinds(space, refusal):
    cases = list(spoiled(JSON[space.name]))
    allowed = [data for data in cases if not isinstance(data["space"], str) or data["space"] != space.name]
    assert len(cases) > 300
    assert check(space, cases, refusal) >= len(cases) - 2
    assert check(space, allowed, refusal) == len(allowed) > 0


def test_darts_mappings_with_values_of_other_kinds(refusal):
    pairs = [["skip_connect", 0], ["sep_conv_3x3", 1]]
    good = json.dumps({"normal": pairs, "normal_concat": [2], "reduce": pairs, "reduce_concat": [2]})
    cases = list(spoiled(good))
    assert refusal(SPACES["darts"].parse, json.loads(good)) is None
    assert check(SPACES["darts"], cases, refusal) == len(cases) > 200


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_other_spaces_notation_is_refused(space, refusal):
    (other,) = set(SPACES) - {space.name}
    assert refusal(space.parse, TEXTS[other])
    assert refusal(space.parse, JSON[other])


@pytest.mark.parametrize(
    "text",
    [
        DARTS,
        f"  DARTS_V9 = {DARTS}\n",
        DARTS.replace("normal=", "")
        .replace("normal_concat=", "")
        .replace("reduce=", "")
        .replace("reduce_concat=", ""),
        DARTS.replace("range(2, 4)", "list(range(2, 4))"),
        DARTS.replace(" normal_concat=range(2, 4),", ""),
        DARTS.replace("(", "[")
        .replace(")", "]")
        .replace("Genotype[", "Genotype(")[:-1]
        .replace("range[2, 4]", "[2, 3]")
        + ")",
    ],
    ids=["plain", "assigned", "positional", "list of range", "no concat", "lists"],
)
def test_ways_of_writing_the_same_darts_cell(text):
    assert SPACES["darts"].parse(text) == SPACES["darts"].parse(DARTS)


@pytest.mark.parametrize("edges", [1, 3])
def test_darts_nodes_have_two_edges(edges):
    data = json.loads(JSON["darts"])
    cell = data["cells"]["normal"]
    cell["edges"] = cell["edges"][1:] if edges == 1 else [*cell["edges"], ["skip_connect", 1, 2]]
    with pytest.raises(InputError, match=f"'normal' with two edges into node 2, got {edges}"):
        SPACES["darts"].parse(data)


def test_messages_help():
    with pytest.raises(InputError, match=r"'normal' \(did you mean 'sep_conv_3x3'\?\), got 'sep_conv_3x4'"):
        SPACES["darts"].parse(DARTS.replace("sep_conv_3x3", "sep_conv_3x4"))
    with pytest.raises(InputError, match="did you mean 'nor_conv_3x3'"):
        SPACES["nasbench201"].parse(ARCH.replace("nor_conv_3x3", "nor_conv_3x4"))
    with pytest.raises(InputError, match="from an earlier node"):
        SPACES["darts"].parse(DARTS.replace("('dil_conv_5x5', 2)", "('dil_conv_5x5', 3)"))
