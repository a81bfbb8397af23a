"""What an offline run of Weights & Biases holds, read from its own file."""

import json
import struct
import time


def records(path):
    """A .wandb file's records: 32 KiB blocks with pieces of (checksum, length, type), as in LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts = path.read_bytes(), 7, b""  # behind W&B's own header
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, last
            yield Record.FromString(parts)
            parts = b""


def finished(path, seconds=30):
    """All records: W&B's own process writes the last of them behind our back."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = list(records(path))
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"no end of the run in {path} after {seconds} s")


def item_name(item):
    return item.key or ".".join(item.nested_key)


class OfflineRun:
    """The parts of such a file that tests look at."""

    def __init__(self, path):
        self.files = path.parent / "files"
        self.records = finished(path)
        self.history = [
            {item_name(item): json.loads(item.value_json) for item in record.history.item}
            for record in self.of("history")
        ]
        (self.run,) = [record.run for record in self.of("run")][:1]
        configs = [self.run.config, *(record.config for record in self.of("config"))]
        self.config = {
            item_name(item): json.loads(item.value_json) for config in configs for item in config.update
        }
        artifacts = [record.artifact for record in self.of("artifact")]
        self.artifacts = [artifact for artifact in artifacts if artifact.type != "run_table"]
        self.metrics = {record.metric.name: record.metric for record in self.of("metric")}
        (self.exit_code,) = [record.exit.exit_code for record in self.of("exit")]
        self.summary = {
            item_name(item): json.loads(item.value_json)
            for record in self.of("summary")
            for item in record.summary.update
        }

    def of(self, kind):
        return [record for record in self.records if record.WhichOneof("record_type") == kind]

    def values(self, name):
        return [row[name] for row in self.history if name in row]


def read_runs(folder):
    """The offline runs of a run's folder, in the order of their starts."""
    files = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    return [OfflineRun(file) for file in files]
