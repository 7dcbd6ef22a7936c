"""LightGBM's network over Unisono: training on several processes, over shared memory and sockets. See README.md."""

import ctypes
import os
from pathlib import Path

import lightgbm
import numpy

__all__ = ["Error", "Network"]


class Error(RuntimeError):
    """A failed call of the network: `code` is that of unisono_status, `rank` is to blame (-1: none)."""

    def __init__(self, text, code, rank):
        super().__init__(text)
        self.code, self.rank = code, rank


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("timeout_s", ctypes.c_double),
        ("transport", ctypes.c_char_p),
        ("trusted_network", ctypes.c_int),
        ("reserved", ctypes.c_int),
    ]


def _load():
    named = os.environ.get("UNISONO_LIGHTGBM_LIBRARY")
    found = [Path(named)] if named else sorted(Path(__file__).parent.glob("_network*.so"))
    if not found:
        raise ImportError(f"unisono_lightgbm: no _network*.so in {Path(__file__).parent}; is the package installed?")
    library = ctypes.CDLL(str(found[0]))
    library.unisono_last_error.restype = ctypes.c_char_p
    world, count = ctypes.c_void_p, ctypes.c_size_t
    for name, arguments in {
        "join": [ctypes.POINTER(world), ctypes.POINTER(_Options)],
        "leave": [world],
        "rank": [world],
        "size": [world],
        "abort": [world, ctypes.c_char_p],
        "broadcast": [world, world, count, count, ctypes.c_int],
        "all_reduce": [world, world, world, count, ctypes.c_int, ctypes.c_int],
        "lightgbm_use": [world, world],
        "lightgbm_round": [world, world, world, count],
    }.items():
        getattr(library, f"unisono_{name}").argtypes = arguments
    return library


_library = _load()
_lightgbm = lightgbm.basic._LIB
_NOT_FINITE = 7
_NOT_OF_BINS = ("num_machines", "tree_learner", "pre_partition", "objective")


class Network:
    """The ranks that the launcher started, as LightGBM's network of the calling thread; one process without a launcher.

    transport: "auto" (shared memory on one host, sockets between hosts), "shared_memory", "hosts" or "tcp".
    timeout: seconds for meeting and for each call of the network.
    """

    def __init__(self, transport="auto", timeout=600.0):
        self._world = ctypes.c_void_p()
        self._check(_library.unisono_join(ctypes.byref(self._world), _Options(ctypes.sizeof(_Options), timeout, transport.encode())))
        self.rank = _library.unisono_rank(self._world)
        self.size = _library.unisono_size(self._world)
        self._attach()

    def _check(self, status):
        if status != 0:
            raise Error(_library.unisono_last_error().decode(), status, _library.unisono_last_error_rank())

    def _attach(self):
        init = ctypes.cast(_lightgbm.LGBM_NetworkInitWithFunctions, ctypes.c_void_p)
        if _library.unisono_lightgbm_use(self._world, init) != 0:
            raise Error("LightGBM did not take the network: " + _lightgbm.LGBM_GetLastError().decode(), 4, -1)

    def _detach(self):
        _lightgbm.LGBM_NetworkFree()
        _library.unisono_lightgbm_use(None, None)

    def __enter__(self):
        return self

    def __exit__(self, kind, failure, trace):
        if kind is not None and self._world:
            _library.unisono_abort(self._world, f"{kind.__name__}: {failure}".encode())
        self.leave()

    def leave(self):
        """Says goodbye to the other ranks."""
        if self._world:
            self._detach()
            _library.unisono_leave(self._world)
            self._world = ctypes.c_void_p()

    @property
    def parameters(self):
        """What LightGBM's parameters need: every rank has rows of its own."""
        return {"num_machines": self.size, "tree_learner": "data", "pre_partition": True} if self.size > 1 else {}

    def sum(self, values):
        """The sum over all ranks, in double. Exact if all numbers are integers below 2^53."""
        total = numpy.array(values, dtype=numpy.float64, order="C")
        self._check(_library.unisono_all_reduce(self._world, total.ctypes.data, total.ctypes.data, total.size, 1, 0))
        return total

    def shared_bins(self, sample, parameters=None, **arguments):
        """A Dataset with the bins of rank 0's `sample` (rows x features), for `lightgbm.Dataset(..., reference=...)` on every rank.

        LightGBM finds bins on each rank's own rows otherwise, so they depend on the number of ranks. Other ranks pass None.
        """
        shape = numpy.zeros(2, dtype=numpy.int64)
        if self.rank == 0:
            sample = numpy.array(sample, dtype=numpy.float64, order="C")
            shape[: sample.ndim] = sample.shape
        self._check(_library.unisono_broadcast(self._world, shape.ctypes.data, 2, 8, 0))
        if 0 in shape:
            raise ValueError(f"shared_bins: found a sample of rank 0 of shape {tuple(shape)}, expected rows and features")
        if self.rank != 0:
            sample = numpy.empty(tuple(shape))
        self._check(_library.unisono_broadcast(self._world, sample.ctypes.data, sample.size, 8, 0))
        self._detach()  # the sample is not distributed
        try:
            alone = {name: value for name, value in (parameters or {}).items() if name not in _NOT_OF_BINS}
            return lightgbm.Dataset(sample, params=alone, free_raw_data=False, **arguments).construct()
        finally:
            self._attach()

    def reproducible(self, objective):
        """The same objective function, with gradients and hessians whose sums are exact in any order.

        objective(predictions, dataset) returns both, as LightGBM's custom objectives do. Collective: each rank calls it once per iteration.
        """

        def rounded(predictions, dataset):
            both = [numpy.array(each, dtype=numpy.float32, order="F") for each in objective(predictions, dataset)]
            gradients, hessians = both
            if gradients.shape != hessians.shape:
                raise ValueError(f"found gradients of shape {gradients.shape} and hessians of shape {hessians.shape}, expected one shape")
            status = _library.unisono_lightgbm_round(self._world, gradients.ctypes.data, hessians.ctypes.data, gradients.size)
            if status == _NOT_FINITE:
                raise Error("a gradient or hessian of some rank is not finite", status, -1)
            self._check(status)
            return gradients, hessians

        return rounded
