"""A process of a distributed run on pretended GPUs, under the rules of NCCL.

    python -m tests.gpu.two_ranks folder job …

Rank and world come from the environment, as torchrun sets it. A job is `search strategy space overrides …`
or `train overrides …`; what came out of the n-th is in `folder`/n_rank.
"""

import json
import os
import sys
import warnings
from pathlib import Path

import torch

from tests.gpu.jobs import run_search, run_training
from tests.gpu.pretended import pretended_gpu

GLOO = "{_target_:pytorch_lightning.strategies.DDPStrategy,process_group_backend:gloo}"


def main(folder: Path, jobs: list[str]) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    own = (f"trainer.devices={world}", f"trainer.strategy={GLOO}")
    with pretended_gpu("cuda", devices=world, index=rank) as log:
        for number, job in enumerate(jobs):
            kind, *words = job.split()
            log.clear()
            if kind == "search":
                strategy, space, *words = words
                facts = run_search(folder, "gpu", *own, *words, strategy=strategy, space=space)
            else:
                facts = run_training(folder, "gpu", *own, *words)
            random = torch.rand(1, device="cuda").item()  # after a search; a test seeds all ranks again
            found = {"notation": facts.notation, "metrics": facts.metrics, "random": random}
            found |= {name: getattr(log, name) for name in ("operations", "host_work", "collectives")}
            (folder / f"{number}_{rank}").write_text(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
