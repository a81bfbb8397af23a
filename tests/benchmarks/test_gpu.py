"""The benchmark of GPUs runs on the CPU, and measures every setting."""

from itertools import product

from benchmarks import gpu
from benchmarks.gpu import COLUMNS, KERNELS, LAYOUTS, PRECISIONS, main


def test_every_setting_is_a_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu, "PRECISIONS", PRECISIONS[::2])
    monkeypatch.setattr(gpu, "KERNELS", KERNELS[::2])
    main(["--device", "cpu", "--small", "--batch", "2", "--steps", "1", "--folder", str(tmp_path)])
    (path,) = tmp_path.glob("gpu_cpu_*.md")
    lines = [line.strip("|").split("|") for line in path.read_text().splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line] for line in lines]
    assert header == [*COLUMNS]
    settings = product(LAYOUTS, PRECISIONS[::2], KERNELS[::2], ("training", "search, weights"))
    assert [tuple(row[:4]) for row in rows] == [(step, *setting) for *setting, step in settings]
    assert all(float(row[4].replace(",", "")) > 0 for row in rows)
    assert str(path) in capsys.readouterr().out
