"""Every module imports, and every example in its documentation runs."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import nas_lightning

MODULES = sorted(module.name for module in pkgutil.walk_packages(nas_lightning.__path__, "nas_lightning."))


@pytest.mark.parametrize("name", MODULES)
def test_documentation_examples_run(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


def test_genotypes_need_the_standard_library_only():
    code = "import nas_lightning.genotype, sys; print(*{'torch', 'numpy', 'hydra'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""
