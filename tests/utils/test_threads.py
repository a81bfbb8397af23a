"""The number of threads of the commands."""

import subprocess
import sys

from tests.conftest import REPOSITORY


def test_setting_threads_imports_nothing_heavy():
    code = (
        "import sys; from nas_lightning.utils.threads import set_thread_defaults; set_thread_defaults();"
        "sys.exit(bool({'torch', 'numpy', 'pytorch_lightning'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=False).returncode == 0
