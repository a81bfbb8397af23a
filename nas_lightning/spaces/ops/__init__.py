"""The operations of cells: a file a family, each found by name."""

from nas_lightning.spaces.ops.layers import (
    FactorizedReduce,
    NeedsReLU,
    Pick,
    PreActivated,
    ReduceByPool,
    conv_norm,
    weighted,
)
from nas_lightning.spaces.ops.norm import SEARCH_NORM, TRAIN_NORM, Norm
from nas_lightning.spaces.ops.registry import (
    NONE,
    SKIP,
    Operation,
    add_operation,
    all_operations,
    build_op,
    find_operation,
    has_parameters,
    is_operation,
    operation,
    operation_names,
    own_targets,
)

__all__ = [
    "NONE",
    "SEARCH_NORM",
    "SKIP",
    "TRAIN_NORM",
    "FactorizedReduce",
    "NeedsReLU",
    "Norm",
    "Operation",
    "Pick",
    "PreActivated",
    "ReduceByPool",
    "add_operation",
    "all_operations",
    "build_op",
    "conv_norm",
    "find_operation",
    "has_parameters",
    "is_operation",
    "operation",
    "operation_names",
    "own_targets",
    "weighted",
]
