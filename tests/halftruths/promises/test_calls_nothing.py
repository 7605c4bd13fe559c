"""The autopsy runs nobody's code: no method, property, `==` or hook of what it finds."""

import sys
import types

import pytest
import torch
from scenes import (
    CALLS,
    HALF,
    INSIDE,
    MASK,
    THINGS,
    Net,
    as_local,
    batch,
    caught,
    finds,
    knows_no,
    read,
    step,
)
from torch import nn

from cases import halftruths


def test_the_scene_itself():
    found = finds(read(caught(step, Net().half(), torch.ones(2, 4, dtype=HALF))), cure=MASK)
    assert found.where["module"] == "body" and found.where["op"] == "linear"
    assert found.road[0]["code"] == "mask = x.float()"


def as_argument(model, thing):
    x = torch.ones(2, 4)
    return model(x, thing, more=thing)


def beside_it(model, thing):
    return torch.matmul(torch.ones(2, 4), model.body.weight, out=None) if thing is None else \
        torch.add(torch.ones(2, 4) @ model.body.weight, thing)


def as_attribute(model, thing):
    holder = types.SimpleNamespace(thing=thing, x=torch.ones(2, 4))
    x = holder.thing if holder.x is None else holder.x
    return model(x, holder.thing)


def out_of_it(model, thing):
    """The names that lead to the odd operand lead through the thing."""
    try:
        x = thing.mask
    except BaseException:
        x = torch.ones(2, 4)
    return model(x)


def out_of_its_entry(model, thing):
    try:
        x = thing["mask"][0:2]
    except BaseException:
        x = torch.ones(2, 4)
    return model(x)


def out_of_its_call(model, thing):
    try:
        x = thing(2).mask.to(thing)
    except BaseException:
        x = torch.ones(2, 4)
    return model(x)


def over_it(model, thing):
    try:
        for x in thing:
            assert x is not None
            break
    except BaseException:
        x = None
    x = x if type(x) is torch.Tensor else torch.ones(2, 4)
    return model(x)


def chosen_by_it(model, thing):
    x = torch.ones(2, 4) if thing is not None else thing
    y = x if thing is None or thing is not x else x.half()
    return model(y)


MADE = "x = torch.ones(2, 4, dtype=torch.float16)"
# Each with its cure. What may have come out of the thing, nobody can say without asking it.
SCENES = {
    as_local: (MADE, None), as_argument: (MADE, None),
    beside_it: ("torch.add(torch.ones(2, 4, dtype=torch.float16) @ model.body.weight, thing)",
                None),
    as_attribute: ("holder = types.SimpleNamespace(thing=thing, "
                   "x=torch.ones(2, 4, dtype=torch.float16))", None),
    out_of_it: (MADE, "`x` is bound in a branch"),
    out_of_its_entry: (MADE, "`x` is bound in a branch"),
    out_of_its_call: (MADE, "`x` is bound in a branch"),
    over_it: ("x = x if type(x) is torch.Tensor else torch.ones(2, 4, dtype=torch.float16)",
              "may take either branch"),
    chosen_by_it: (f"{MADE} if thing is not None else thing", None),
}


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_nothing_of_a_things_own_is_called(scene, thing):
    found, (cure, asks) = read(caught(scene, Net().half(), THINGS[thing]())), SCENES[scene]
    if scene is chosen_by_it and thing == "None":  # then x is None: that is no dtype
        knows_no(found, "Not about dtypes")
    elif scene is beside_it and thing == "None":
        assert "matmul(torch.ones(2, 4, dtype=torch.float16), model.body" in found.cure["code"]
        finds(found, "torch.ones(2, 4)")
    else:
        finds(found, "torch.ones(2, 4)" if scene is beside_it else "input", cure=cure, asks=asks)


@pytest.mark.parametrize("thing", THINGS)
def test_nor_of_one_that_is_global_or_enclosing(thing):
    made = THINGS[thing]()
    space = {"thing": made, "torch": torch, "x": torch.ones(2, 4), "model": Net().half()}
    finds(read(caught(exec, "model(x, thing)", space)), cure=INSIDE, asks="cannot be read")

    def enclosed(model):
        x = torch.ones(2, 4)
        return (lambda: model(x, made))()

    finds(read(caught(enclosed, Net().half())), cure=MADE)


class Asked(nn.Module):
    """A model that answers everything by code of its own."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        return nn.functional.linear(x, self.body.weight)

    def _counted(name):
        def call(self, *args, **kwargs):
            CALLS.append(name)
            return getattr(nn.Module, name)(self, *args, **kwargs)

        return call

    for _name in ("named_modules", "modules", "children", "named_children", "parameters", "buffers",
                  "named_parameters", "named_buffers", "state_dict", "__getattr__", "__dir__",
                  "__repr__", "extra_repr", "apply", "get_submodule", "get_parameter", "_get_name"):
        locals()[_name] = _counted(_name)
    del _name

    @property
    def training_dtype(self):
        CALLS.append("training_dtype")
        return torch.float16

    dtype = device = training_dtype

    def __len__(self):
        CALLS.append("__len__")
        return 0

    def __iter__(self):
        CALLS.append("__iter__")
        return iter(())

    def __getitem__(self, key):
        CALLS.append("__getitem__")
        raise KeyError(key)

    def __eq__(self, other):
        CALLS.append("__eq__")
        return False

    __hash__ = nn.Module.__hash__


def test_nothing_of_a_models_own_is_called():
    model = Asked().half()

    def run(model):
        x = torch.ones(2, 4).to(torch.float32)
        return nn.Sequential(model)(x)

    found = finds(read(caught(run, model)), "x", cure="x = torch.ones(2, 4).to(torch.float16)")
    assert found.where["module"] == "0"
    assert found.why == "because 20 of 20 parameters of the model are float16"


class Subclass(torch.Tensor):
    """A tensor every function on which is noted."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        CALLS.append(getattr(function, "__name__", "?"))
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    """A tensor that computes by another, as distributed and quantised ones do."""

    asks = None  # "sizes": it computes its shape too, as nested ones do

    @classmethod
    def of(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device,
            dispatch_sizes_strides_policy=cls.asks)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        CALLS.append(str(function))
        args = [arg.inner if isinstance(arg, Wrapper) else arg for arg in args]
        return function(*args, **(kwargs or {}))


class Sized(Wrapper):
    asks = "sizes"


MAKE = {"function": lambda x: x.as_subclass(Subclass), "dispatch": Wrapper.of, "sizes": Sized.of}


@pytest.mark.parametrize("kind", MAKE)
def test_no_function_of_a_tensor_subclass_is_called(kind):
    make = MAKE[kind]

    def run(weight):
        x = make(torch.ones(2, 4))
        scale = make(torch.ones(4))
        return torch.matmul(x * scale if kind == "function" else x, weight)

    def held():
        model = Net()
        model.body.weight = nn.Parameter(torch.ones(4, 4, dtype=HALF))
        model.body.kept = make(torch.ones(4))
        model.body.register_buffer("more", make(torch.ones(4)))
        step(model, torch.ones(2, 4))

    scenes = (
        (caught(run, torch.ones(4, 4, dtype=HALF)), "weight", "weight.to(torch.float32))"),
        (caught(held), "input", MASK),
        (caught(lambda x, model: model(x), make(torch.ones(2, 4)), Net().half()), "input", INSIDE))
    for error, odd, cure in scenes:
        found = halftruths.autopsy(error)
        # A tensor that computes its shape is asked for that alone: there is no other way to it.
        asked = {"aten.dim.default", "aten.size.default", "aten.sym_size.default",
                 "aten.sym_numel.default"} if kind == "sizes" else set()
        assert set(CALLS) <= asked
        CALLS.clear()
        read(error) if kind != "sizes" else None
        assert "stopped halfway" not in found.text()
        finds(found, odd, "float16" if odd == "weight" else "float32")
        assert found.cure["code"].strip().endswith(cure)
        if odd == "input":  # of a model whose bias would disagree next it is not sure
            assert found.sure == (cure is INSIDE)


@pytest.mark.parametrize("kind", ["function", "dispatch", "device"])
def test_a_mode_that_is_on_sees_nothing(kind):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            CALLS.append(str(function))
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            CALLS.append(str(function))
            return function(*args, **(kwargs or {}))

    error = caught(step, Net().half(), batch())
    mode = {"function": Functions, "dispatch": Dispatches, "device": lambda: torch.device("meta")}
    with mode[kind]():
        found = halftruths.autopsy(error)
        assert CALLS == []
    finds(found, cure=MASK)


def test_a_namespace_that_is_a_mapping_of_the_users_is_not_asked():
    class Space(dict):
        def __getitem__(self, key):
            CALLS.append(key)
            return super().__getitem__(key)

        def __contains__(self, key):
            CALLS.append(key)
            return super().__contains__(key)

    space = Space(x=torch.ones(2, 4), model=Net().half())
    finds(read(caught(exec, "model(x)", {}, space)), cure=INSIDE, asks="cannot be read")

    class Kind(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return space

    def body():
        class Settings(metaclass=Kind):
            y = model(x)  # noqa: F821

        return Settings

    finds(read(caught(body)), cure=INSIDE, asks="Where `x` got its dtype cannot be read")


def test_a_debugger_loses_no_variable():
    """Up to Python 3.12 a frame's f_locals is written back to it when a trace function returns."""
    error, lost = caught(step, Net().half(), batch()), []

    def run():
        first, second = [1], [2]
        try:
            step(Net().half(), batch())
        except RuntimeError as problem:
            error = problem
            sys.settrace(trace)
            sys._getframe().f_trace = trace
            first.append(3)
            sys.settrace(None)
        return first, second, error

    def trace(frame, event, arg):
        if event == "line" and "error" in frame.f_locals:
            halftruths.autopsy(frame.f_locals["error"])
        return trace

    try:
        first, second, _ = run()
    except NameError as problem:
        lost.append(str(problem))
    finally:
        sys.settrace(None)
    assert lost == [] and error is not None
    assert (first, second) == ([1, 3], [2])
