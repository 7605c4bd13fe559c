"""The autopsy changes nothing of the process, the model, the exception and its frames."""

import copy
import gc
import linecache
import os
import random
import sys
import threading
import warnings

import pytest
import torch
from scenes import MARK, MASK, Net, batch, caught, finds, read, step
from torch import nn


def state_of(model, x, error):
    """All of the process, the model and the exception that a reader could change."""
    dtypes = [torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda")]
    tensors = [x, *model.parameters(), *model.buffers()]
    frames, tb = [], error.__traceback__
    while tb is not None:
        frames.append((id(tb), id(tb.tb_frame), tb.tb_lineno, tb.tb_lasti,
                       {name: id(value) for name, value in tb.tb_frame.f_locals.items()}))
        tb = tb.tb_next
    return {
        "tensors": [(id(t), t._version, t.requires_grad, id(t.grad), t.data_ptr(), t.dtype,
                     t.detach().tolist(), id(t.grad_fn), sorted(vars(t)))
                    for t in tensors],
        "modules": [(name, {key: id(value) for key, value in vars(module).items()},
                     [list(store) for store in (module._modules, module._parameters,
                                                module._buffers)], module.training)
                    for name, module in model.named_modules()],
        "random": (random.getstate(), torch.get_rng_state().tolist()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"), dtypes,
                     torch.is_autocast_cache_enabled()),
        "switches": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                     torch.get_default_dtype(), torch.get_default_device(),
                     torch.get_num_threads(), torch.is_anomaly_enabled(),
                     torch.are_deterministic_algorithms_enabled(),
                     torch.backends.mha.get_fastpath_enabled()),
        "python": (sys.gettrace(), sys.getprofile(), sys.excepthook, sys.displayhook, sys.path[:],
                   sys.getrecursionlimit(), warnings.filters[:], os.getcwd(), sys.stdout,
                   sys.stderr, gc.isenabled(), threading.excepthook, linecache.getline,
                   os.environ.copy()),
        "error": (error.args, id(error.__cause__), id(error.__context__),
                  error.__suppress_context__, dict(vars(error)), str(error)),
        "frames": frames,
    }


def shared_scene():
    model = nn.Sequential(nn.LayerNorm(4), nn.Dropout(0.5), Net(), nn.BatchNorm1d(4)).to(
        torch.bfloat16)
    model[2].body.weight.requires_grad_(False)
    model[2].body.bias.grad = torch.full_like(model[2].body.bias, MARK)
    x = torch.full((2, 4), MARK, requires_grad=True)
    return model, x


@pytest.mark.parametrize("inside", ["nothing", "autocast", "no_grad", "inference"])
def test_it_changes_nothing(inside):
    model, x = shared_scene()
    around = {"nothing": torch.enable_grad, "no_grad": torch.no_grad,
              "inference": torch.inference_mode,
              "autocast": lambda: torch.autocast("cpu", torch.bfloat16)}[inside]

    def run(model, x):
        y = x.double()
        with torch.autocast("cpu", enabled=False):
            return model[2](y)

    with around():
        error = caught(run, model, x)
        before = state_of(model, x, error)
        read(error)
        found = read(error)
        after = state_of(model, x, error)
    assert after == before
    finds(found, dtype="float64", cure="y = x.to(torch.bfloat16)")


def test_the_same_answer_twice():
    error = caught(step, Net().half(), batch())
    assert finds(read(error), cure=MASK).to_json() == read(error).to_json()
    assert copy.deepcopy(read(error)).text() == read(error).text()


def test_a_running_frame_keeps_its_variables():
    def run():
        model, x, count = Net().half(), batch(), 3
        held = locals()
        before = dict(held)
        try:
            return step(model, x)
        except RuntimeError as error:
            read(error)
            assert {name: id(held[name]) for name in before} == {
                name: id(value) for name, value in before.items()}
            assert (type(model), x.shape, count) == (Net, (2, 4), 3)
            now = locals()
            assert now["count"] == 3 and now["x"] is x and now["model"] is model
        return "went on"

    assert run() == "went on"
