"""What the autopsy promises: it never raises, runs nobody's code, changes and keeps nothing.

The scenes are failures of dtypes in the company of everything that could trip a reader of frames.
"""

import asyncio
import copy
import gc
import html.parser
import itertools
import json
import linecache
import os
import random
import re
import subprocess
import sys
import threading
import time
import types
import warnings
import weakref
from collections import OrderedDict, UserDict, UserList
from pathlib import Path

import pytest
import torch
from torch import nn

import cases
from cases import halftruths
from cases.halftruths.exceptions import answer as reader
from cases.lab import torches

HALF = torch.float16
MARK = 246913.5 / 2  # 123456.75, which no text may show
CALLS = []  # what was called of the user's, by name


def caught(function, *args, **kwargs):
    """Return what `function` raises, and forget what it called itself."""
    try:
        function(*args, **kwargs)
    except BaseException as error:
        CALLS.clear()
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError("it raised nothing")


class Words(html.parser.HTMLParser):
    """The text of an HTML, and the names of its tags."""

    def __init__(self, source):
        super().__init__()
        self.words, self.tags, self.handlers = [], set(), []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]

    def handle_data(self, data):
        self.words += data.split()


def read(error):
    """Return the Autopsy, having held it to what must be true of each.

    A reading that stopped halfway is a fault of the reader's own, and a failure here.
    """
    found = halftruths.autopsy(error)
    assert CALLS == [], "it ran code of the user's"
    text, shown = found.text(), Words(found._repr_html_())
    assert str(found) == repr(found) == text
    assert shown.words == text.split(), "the HTML and its text twin say the same"
    assert shown.tags <= {"h4", "pre", "div", "code", "br", "table", "tr", "td",
                          "th", "tbody", "caption", "strong"}
    assert shown.handlers == []
    told = found.to_json()
    stored = json.dumps(told, allow_nan=False)
    assert json.loads(stored) == told
    for said in (text, found._repr_html_(), stored, json.dumps(told, ensure_ascii=False)):
        assert "23456.7" not in said and "23,456.7" not in said and "234568" not in said
        assert not re.search(r"0x[0-9a-f]{6}", said), "an address in memory"
    assert set(told) >= {"error", "where", "odd", "road", "cure", "case", "sure"}
    assert isinstance(told["sure"], bool) and isinstance(told["road"], list)
    assert set(told["error"]) == {"type", "message"}
    assert "stopped halfway" not in text, text
    if found.cure:
        fits(found.cure)
    CALLS.clear()
    return found


def fits(cure, folder=None):
    """A cure is Python again once it has taken its lines' place, and differs from them."""
    name, lines = cure["at"].rsplit(":", 1)
    first, last = (int(part) for part in (lines.split("-") * 2)[:2])
    path = os.path.join(folder or torches.ROOT, name)
    if not os.path.isfile(path):
        path = os.path.join(os.path.dirname(__file__), name)
    if not os.path.isfile(path):
        return
    with open(path, encoding="utf-8") as file:
        old = file.read().split("\n")
    code = cure["code"].split("\n")
    assert code != old[first - 1:last], "it changes nothing"
    compile("\n".join(old[:first - 1] + code + old[last:]), name, "exec")
    assert not code[0].startswith("import"), cure


class Net(nn.Module):
    """A model in half whose layer meets float32."""

    def __init__(self, inner=None):
        super().__init__()
        self.body = inner if inner is not None else nn.Linear(4, 4)
        nn.init.constant_(self.body.weight, MARK) if isinstance(self.body, nn.Linear) else None

    def forward(self, x, *others, **more):
        return self.body(x)


def batch():
    return torch.full((2, 4), MARK)


def step(model, x, *things, **more):
    mask = x.float()
    return model(mask, *things, **more)


def finds(found, name="input", dtype="float32"):
    assert found.odd == {"name": name, "dtype": dtype}, found.text()
    return found


def test_the_scene_itself():
    found = finds(read(caught(step, Net().half(), torch.ones(2, 4, dtype=HALF))))
    assert found.where["module"] == "body" and found.where["op"] == "linear"
    assert found.road[0]["code"] == "mask = x.float()"
    assert found.cure["code"].strip() == "mask = x.to(torch.float16)"


# ------------------------------------------------------------------ it runs nobody's code


def hostile(name, base=object):
    """A class each of whose special methods notes that it was called, and raises."""

    def method(called):
        def call(self, *args, **kwargs):
            CALLS.append(called)
            raise RuntimeError(f"{called} was called")

        return call

    names = ("__eq__ __ne__ __lt__ __gt__ __le__ __ge__ __bool__ __len__ __iter__ __next__ "
             "__repr__ __str__ __format__ __call__ __getitem__ __contains__ __getattr__ __dir__ "
             "__getattribute__ __index__ __int__ __float__ __array__ __torch_function__ __hash__ "
             "__get__ __instancecheck__ __fspath__ __reduce__ __copy__ __deepcopy__ __sizeof__ "
             "__bytes__ __length_hint__ __missing__ keys items values get").split()
    space = {called: method(called) for called in names}
    for called in ("shape", "dtype", "device", "__class__", "is_floating_point"):
        space[called] = property(method(called))
    return type(name, (base,), space)


class Stored:
    """Its `__dict__` is computed."""

    @property
    def __dict__(self):
        CALLS.append("__dict__")
        raise RuntimeError("no dict")


class Meta(type):
    """As the placeholders of transformers for classes whose package is missing."""

    def __getattribute__(cls, name):
        CALLS.append(f"type's {name}")
        raise ImportError("not installed")


class OfMeta(metaclass=Meta):
    pass


class Liar:
    """It says that it is a module and a tensor."""

    @property
    def __class__(self):
        CALLS.append("__class__")
        return nn.Linear


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        CALLS.append(name)
        raise AttributeError(name)


class Slots:
    __slots__ = ("mask",)


class Computed:
    @property
    def mask(self):
        CALLS.append("mask")
        raise RuntimeError("no mask")

    @classmethod
    def make(cls):
        return cls()


class Counting(dict):
    """A batch as a library returns it: all ways to its entries are its own."""

    def __getitem__(self, key):
        CALLS.append("__getitem__")
        return super().__getitem__(key)

    def _counted(name):
        def call(self, *args):
            CALLS.append(name)
            return getattr(dict, name)(self, *args)

        return call

    for _name in ("get", "keys", "values", "items", "__iter__", "__len__", "__contains__",
                  "__eq__"):
        locals()[_name] = _counted(_name)
    del _name


class Pile(list):
    def __getitem__(self, key):
        CALLS.append("__getitem__")
        return super().__getitem__(key)

    def __iter__(self):
        CALLS.append("__iter__")
        return super().__iter__()

    def __len__(self):
        CALLS.append("__len__")
        return super().__len__()


class Text(str):
    def __str__(self):
        CALLS.append("__str__")
        raise RuntimeError("no text")

    __eq__ = __hash__ = __repr__ = __format__ = __str__


class Number(int):
    def __index__(self):
        CALLS.append("__index__")
        raise RuntimeError("no number")

    __eq__ = __lt__ = __le__ = __neg__ = __hash__ = __repr__ = __str__ = __bool__ = __index__


Hostile = hostile("Hostile")
THINGS = {
    "object": lambda: object.__new__(Hostile),
    "dict": lambda: dict.__new__(hostile("HostileDict", dict)),
    "list": lambda: list.__new__(hostile("HostileList", list)),
    "tuple": lambda: tuple.__new__(hostile("HostileTuple", tuple)),
    "class": lambda: Hostile,
    "__dict__": Stored,
    "metaclass": lambda: type.__call__(OfMeta),
    "class of a metaclass": lambda: OfMeta,
    "liar": Liar,
    "lazy package": lambda: Lazy("lazy"),
    "slots": Slots,
    "property": Computed,
    "text": lambda: Text("x"),
    "number": lambda: Number(3),
    "batch": lambda: Counting(mask=batch()),
    "pile": lambda: Pile([batch()]),
    "user dict": lambda: UserDict(mask=batch()),
    "user list": lambda: UserList([batch()]),
    "weak": lambda: weakref.proxy(Net()),
    "generator": lambda: (CALLS.append("ran") for _ in range(3)),
    "iterator": lambda: map(CALLS.append, [1]),
    "lambda": lambda: lambda *a: CALLS.append("ran"),
    "partial": lambda: __import__("functools").partial(CALLS.append, 1),
    "mappingproxy": lambda: types.MappingProxyType(Counting(mask=batch())),
    "None": lambda: None,
    "nan": lambda: float("nan"),
    "bytes": lambda: b"\xff\x00",
    "ellipsis": lambda: ...,
}


def as_local(model, thing):
    x = torch.ones(2, 4)
    return model(x)


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


SCENES = [as_local, as_argument, beside_it, as_attribute, out_of_it, out_of_its_entry,
          out_of_its_call, over_it, chosen_by_it]


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_nothing_of_a_things_own_is_called(scene, thing):
    found = read(caught(scene, Net().half(), THINGS[thing]()))
    assert found.where is not None


@pytest.mark.parametrize("thing", THINGS)
def test_nor_of_one_that_is_global_or_enclosing(thing):
    made = THINGS[thing]()
    space = {"thing": made, "torch": torch, "x": torch.ones(2, 4), "model": Net().half()}
    finds(read(caught(exec, "model(x, thing)", space)))

    def enclosed(model):
        x = torch.ones(2, 4)
        return (lambda: model(x, made))()

    finds(read(caught(enclosed, Net().half())))


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

    found = finds(read(caught(run, model)), "x")
    assert found.where["module"] == "0"
    assert "100 %" in found.census or "float16" in found.census


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

    for error in (caught(run, torch.ones(4, 4, dtype=HALF)), caught(held),
                  caught(lambda x, model: model(x), make(torch.ones(2, 4)), Net().half())):
        found = halftruths.autopsy(error)
        # A tensor that computes its shape is asked for that alone: there is no other way to it.
        asked = {"aten.dim.default", "aten.size.default", "aten.sym_size.default",
                 "aten.sym_numel.default"} if kind == "sizes" else set()
        assert set(CALLS) <= asked
        CALLS.clear()
        read(error) if kind != "sizes" else None
        assert found.where is not None and "stopped halfway" not in found.text()


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
    finds(found)


def test_a_namespace_that_is_a_mapping_of_the_users_is_not_asked():
    class Space(dict):
        def __getitem__(self, key):
            CALLS.append(key)
            return super().__getitem__(key)

        def __contains__(self, key):
            CALLS.append(key)
            return super().__contains__(key)

    space = Space(x=torch.ones(2, 4), model=Net().half())
    read(caught(exec, "model(x)", {}, space))

    class Kind(type):
        @classmethod
        def __prepare__(cls, name, bases):
            return space

    def body():
        class Settings(metaclass=Kind):
            y = model(x)  # noqa: F821

        return Settings

    read(caught(body))


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


# ------------------------------------------------------------------ models that are not whole


def test_a_model_that_is_half_built():
    class Early(nn.Module):
        def __init__(self, x):
            self.odd = "no"
            y = x @ torch.ones(4, 4, dtype=HALF)
            super().__init__()
            self.y = y

    found = read(caught(Early, torch.ones(2, 4)))
    assert found.where["op"] == "matmul"

    class Later(nn.Module):
        def __init__(self, x):
            super().__init__()
            self.layer = nn.Linear(4, 4).half()
            self.y = self.layer(x)

    finds(read(caught(Later, torch.ones(2, 4))))
    read(caught(lambda: nn.Module.__new__(Net)(torch.ones(2, 4))))
    read(caught(as_local, Net().half(), nn.Module.__new__(Net)))


def test_a_model_that_was_tampered_with():
    for name, value in (("_modules", None), ("_parameters", None), ("_buffers", None),
                        ("_parameters", {"weight": None, 3: torch.ones(1)}),
                        ("_modules", {"a": None, "b": 3, 4: nn.Linear(1, 1)}),
                        ("_modules", Counting(inner=nn.Linear(1, 1))), ("_modules", [1])):
        model, other = Net().half(), Net().half()
        object.__setattr__(other, name, value)
        read(caught(as_local, model, other))
    knot = nn.Sequential(Net().half())
    knot.add_module("again", knot)
    knot[0].parent = [knot]
    finds(read(caught(lambda model, x: model[0](x), knot, torch.ones(2, 4))))


def test_a_lazy_module():
    model = nn.Sequential(nn.LazyLinear(4), Net()).half()
    read(caught(step, model, batch()))
    fresh = nn.Sequential(Net().half(), nn.LazyLinear(4), nn.LazyBatchNorm1d())
    finds(read(caught(step, fresh, batch())))
    lazy = nn.parameter.UninitializedParameter(dtype=HALF)
    read(caught(lambda p, x: torch.matmul(x, p), lazy, torch.ones(2, 2)))


def test_scripted_and_traced_modules():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated since torch 2.9
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4))).half()
        traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4)).half()
    read(caught(lambda model, x: model(x), scripted, torch.ones(2, 4)))
    read(caught(lambda model, x: model(x), nn.Sequential(traced), torch.ones(2, 4)))
    read(caught(lambda model, x: model(x), torch.fx.symbolic_trace(Net()).half(),
                torch.ones(2, 4)))


# ------------------------------------------------------------------ exceptions of every kind


class Broken(RuntimeError):
    """Nothing about it can be asked."""

    def _raise(self, *args):
        CALLS.append("asked")
        raise ValueError("no answer")

    __eq__ = __bool__ = __len__ = __hash__ = __getattr__ = __contains__ = _raise
    __repr__ = __iter__ = __getitem__ = with_traceback = add_note = _raise
    __cause__ = __context__ = __traceback__ = __suppress_context__ = __notes__ = property(_raise)
    args = __class__ = property(_raise)


class Unspeakable(RuntimeError):
    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


def test_no_exception_at_all():
    for thing in (None, 3, "RuntimeError: expected Half", ValueError, object(), [], Net(),
                  torch.ones(2), THINGS["object"](), THINGS["metaclass"](), OfMeta):
        found = read(thing)
        assert not found.found and not found.sure


def test_an_exception_that_was_never_raised():
    found = read(RuntimeError("expected scalar type Half but found Float"))
    assert found.where is None and not found.sure and found.asks


def test_exceptions_that_answer_nothing():
    def run(kind):
        try:
            step(Net().half(), batch())
        except RuntimeError as error:
            raise kind("odd") from error

    try:
        run(Broken)
    except BaseException as error:
        CALLS.clear()
        found = halftruths.autopsy(error)
    assert found.error["type"] == "Broken" and CALLS == []
    assert "stopped halfway" not in found.text()
    read(caught(run, Unspeakable))
    try:
        run(Broken)
    except BaseException as error:
        broken = error

    def outer():
        try:
            raise broken
        except BaseException:
            raise ValueError("after") from None

    def other():
        try:
            raise broken
        except BaseException as error:
            raise ValueError("after") from error

    read(caught(outer))
    read(caught(other))


@pytest.mark.parametrize("message", [
    "x" * 3_000_000, "expected scalar type Half but found Float " * 100_000,
    "\0\x1b[31m\ud800\u202e",
    "a\nb\nc" * 10_000, "<script>alert(1)</script>", "%s {0} {x!r}", "", " \n ", "é" * 600,
    "(" * 100_000, "Half" + " " * 500_000 + "Float",
], ids=lambda message: repr(message[:12]) + f" {len(message)}")
def test_messages_of_every_kind(message):
    def run(model, x):
        try:
            return model(x)
        except RuntimeError:
            raise RuntimeError(message) from None

    start = time.perf_counter()
    found = read(caught(run, Net().half(), torch.ones(2, 4)))
    assert time.perf_counter() - start < 2, "a pattern that backtracks"
    assert len(found.text()) < 5_000
    assert len(found.error["message"]) <= 510


def test_exceptions_with_strange_arguments():
    for args in ((), (1, 2), (None,), (b"\xff",), (RuntimeError("in it"),), ({"a": 1},)):
        read(caught(lambda args: (_ for _ in ()).throw(RuntimeError(*args)), args))
    read(caught(lambda: {}["key"]))
    read(caught(lambda: open("/nowhere/at all")))
    read(caught(lambda: b"\xff".decode()))
    read(caught(lambda: compile("a = (", "<in memory>", "exec")))
    read(caught(lambda: __import__("nowhere_at_all")))
    read(caught(lambda: torch.load("/nowhere/at all")))
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, MemoryError):
        def run(kind):
            raise kind

        read(caught(run, kind))


def test_a_chain():
    def run():
        try:
            step(Net().half(), torch.ones(2, 4, dtype=HALF))
        except RuntimeError as error:
            raise ValueError("bad step") from error

    found = finds(read(caught(run)))
    assert found.error["type"] == "ValueError"
    assert found.road[0]["code"] == "mask = x.float()"

    def while_handling():
        try:
            step(Net().half(), batch())
        except RuntimeError:
            {}["no"]

    finds(read(caught(while_handling)))

    def knot():
        try:
            step(Net().half(), batch())
        except RuntimeError as error:
            first = error
        second = ValueError("second")
        second.__cause__, first.__cause__ = first, second
        raise second

    read(caught(knot))

    def long():
        error = None
        for number in range(300):
            try:
                raise ValueError(number) from error
            except ValueError as problem:
                error = problem
        raise error

    read(caught(long))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are Python 3.11's")
def test_groups_of_exceptions():
    def run():
        problems = []
        for dtype in (HALF, torch.bfloat16):
            try:
                step(Net().to(dtype), batch())
            except RuntimeError as error:
                problems.append(error)
        raise ExceptionGroup("two", [ExceptionGroup("inner", problems), ValueError("x")])  # noqa: F821

    read(caught(run))
    noted = caught(step, Net().half(), batch())
    noted.add_note("<script>note</script>")
    noted.__notes__.append(3)
    finds(read(noted))
    noted.__notes__ = 3
    finds(read(noted))


def test_deep_recursion():
    def down(model, x, depth):
        return model(x) if depth == 0 else down(model, x, depth - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5_000)
    try:
        error = caught(down, Net().half(), torch.ones(2, 4), 1_000)
        start = time.perf_counter()
        found = finds(read(error))
        assert time.perf_counter() - start < 1
        assert len(found.text()) < 20_000
    finally:
        sys.setrecursionlimit(limit)

    class Endless(nn.Module):
        def __getattr__(self, name):
            return getattr(self, name + "_")

    read(caught(lambda: Endless().weight))
    read(caught(lambda model: model(torch.ones(2, 4)), Endless()))

    def endless(x):
        return endless(x.float())

    read(caught(endless, torch.ones(1, dtype=HALF)))


def test_with_no_stack_left():
    """Called at the bottom of a recursion: it may find nothing, and must not raise."""
    error = caught(step, Net().half(), batch())

    def down():
        try:
            return down()
        except RecursionError:
            return halftruths.autopsy(error)

    assert down() is not None


# ------------------------------------------------------------------ source that is not to be had


SOURCE = """
def run(model, x):
    mask = x.float()
    return model(mask)
"""


@pytest.fixture
def imported(tmp_path):
    """Return (path, function) of a file that was run."""

    def make(source=SOURCE, name="user.py"):
        path = tmp_path / name
        path.write_text(source)
        space = {"torch": torch}
        exec(compile(source, str(path), "exec"), space)
        return path, space["run"]

    yield make
    linecache.clearcache()


def test_source_that_is_gone(imported):
    path, run = imported()
    path.unlink()
    found = finds(read(caught(run, Net().half(), batch())))
    assert found.cure is None or "user.py" not in found.cure["at"]


@pytest.mark.parametrize("now", ["", "\n", "x = 1\n", "(((\n" * 9, "\0\0", "\n" * 9 + SOURCE,
                                 "\ndef run(model, x):\n    pass\n    pass\n", "café = 'é'\n" * 9])
def test_source_that_has_changed(imported, now):
    path, run = imported()
    error = caught(run, Net().half(), batch())
    path.write_text(now)
    os.utime(path, (1, 1))
    finds(read(error))


def test_source_that_is_no_text(imported):
    path, run = imported()
    error = caught(run, Net().half(), batch())
    path.write_bytes(bytes(range(256)) * 10)
    os.utime(path, (1, 1))
    finds(read(error))
    path.unlink()
    path.mkdir()
    linecache.clearcache()
    finds(read(error))


@pytest.mark.parametrize("name", [
    "<string>", "", "<script>alert(1)</script>.py", "\udcff.py", " ", "a\nb.py", "x" * 5000, "~",
    "<ipython-input-1-abc>", "C:\\x\\y.py", "/nowhere/<b>.py", "../../x.py", "its 'name' \".py"])
def test_names_of_files(name):
    space = {}
    exec(compile(SOURCE, name, "exec"), space)
    read(caught(space["run"], Net().half(), batch()))
    linecache.cache[name] = (len(SOURCE), None, SOURCE.splitlines(True), name)
    try:
        finds(read(caught(space["run"], Net().half(), batch())))
    finally:
        del linecache.cache[name]


def test_code_without_lines_or_a_file():
    model, x = Net().half(), torch.ones(2, 4)
    finds(read(caught(exec, "model(x)", {"model": model, "x": x})))
    finds(read(caught(eval, "[model(x) for x in (x,)]", {"model": model, "x": x})))
    finds(read(caught(lambda: (lambda *a: model(x))(1))))
    code = compile(SOURCE, __file__, "exec")
    space = {}
    exec(code, space)
    finds(read(caught(space["run"], model, x)))  # another line of this very file
    moved = space["run"].__code__.replace(co_firstlineno=10_000)
    read(caught(types.FunctionType(moved, space), model, x))
    moved = space["run"].__code__.replace(co_name="<lambda>")
    read(caught(types.FunctionType(moved, space), model, x))
    bare = space["run"].__code__.replace(co_linetable=b"") if sys.version_info >= (3, 10) else None
    read(caught(types.FunctionType(bare, space), model, x))


def test_a_place_that_is_gone(tmp_path, monkeypatch):
    error = caught(step, Net().half(), batch())
    here = os.getcwd()
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        found = halftruths.autopsy(error)
    finally:
        os.chdir(here)
    finds(found)
    assert "stopped halfway" not in found.text()


def test_a_search_path_of_anything(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/x"), b"/x", None, 3, "", "\0", "x" * 5000])
    finds(read(caught(step, Net().half(), batch())))


def test_a_long_file(imported):
    source = "x = 1\n" * 20_000 + SOURCE + "y = 2\n" * 20_000
    _, run = imported(source)
    start = time.perf_counter()
    finds(read(caught(run, Net().half(), batch())))
    assert time.perf_counter() - start < 2
    deep = "def run(model, x):\n    mask = x.float()\n    y = " + "+".join(["x"] * 900) + \
        "\n    return model(mask)\n"
    finds(read(caught(imported(deep)[1], Net().half(), batch())))


@pytest.mark.parametrize("expression", [
    "x" + ".view(2, 4)" * 40, "(" * 40 + "x" + " + 1)" * 40, "torch.relu(" * 40 + "x" + ")" * 40,
    "torch.cat([" + "x, " * 3_000 + "])", "x" + " + 0" * 800,
], ids=["views", "sums", "calls", "list", "deep"])
def test_long_expressions_take_no_time(imported, expression):
    _, run = imported(f"def run(model, x):\n    return model({expression})\n")
    error = caught(run, Net().half(), torch.ones(2, 4))
    start = time.thread_time()
    found = read(error)
    assert time.thread_time() - start < 0.5
    finds(found)


def test_long_lines_are_cut(imported):
    _, run = imported(f"def run(model, x):\n    y = x + 1; z = '{'a' * 100_000}'; "
                      "return model(y), z\n")
    found = finds(read(caught(run, Net().half(), torch.ones(2, 4))))
    assert len(found.text()) < 10_000


def test_deep_and_wide_models():
    deep = Net().half()
    for _ in range(500):
        deep = nn.Sequential(deep)

    def dig(model, x):
        inner = model
        for _ in range(500):
            inner = inner[0]
        return inner(x)

    found = finds(read(caught(dig, deep, torch.ones(2, 4))))
    assert found.where["module"].count("0.") == 500
    wide = nn.ModuleList([nn.Identity() for _ in range(10_000)] + [Net()]).half()
    found = finds(read(caught(lambda model, x: model[-1](x), wide, torch.ones(2, 4))))
    assert found.where["module"] == "10000.body"


# ------------------------------------------------------------------ where code can run


def test_threads():
    model, errors = Net().half(), []

    def work():
        errors.append(caught(step, model, batch()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    finds(read(errors[0]))
    found = []
    thread = threading.Thread(target=lambda: found.append(halftruths.autopsy(errors[0])))
    thread.start()
    thread.join()
    finds(found[0])
    threads = [threading.Thread(target=lambda: found.append(halftruths.autopsy(
        caught(step, Net().half(), batch())))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 9 and all("stopped halfway" not in one.text() for one in found)
    assert len({one.text() for one in found[1:]}) == 1, "two at once disturb each other"


def test_coroutines():
    async def inner(model, x):
        await asyncio.sleep(0)
        mask = x.float()
        return model(mask)

    async def outer(model, x):
        return (await asyncio.gather(inner(model, x), inner(model, x)))[0]

    found = finds(read(caught(asyncio.run, outer(Net().half(), torch.ones(2, 4).half()))))
    assert found.road[0]["code"] == "mask = x.float()"
    # What a coroutine was handed came from where it was made, which no frame shows.
    found = finds(read(caught(asyncio.run, outer(Net().half(), torch.ones(2, 4)))))
    assert "asyncio" not in found.road[0]["file"]


COROUTINES = """import asyncio, torch
net = torch.nn.Linear(4, 4).half()

async def inner(model, x):
    await asyncio.sleep(0)
    mask = x + 1
    return model(mask)

async def outer(model, x):
    return (await asyncio.gather(inner(model, x), inner(model, x)))[0]

asyncio.run(outer(net, torch.ones(2, 4)))
"""


def test_the_cure_of_a_program_of_coroutines(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(COROUTINES)
    found = finds(read(caught(exec, compile(COROUTINES, str(path), "exec"), {})))
    if found.cure:
        fits(found.cure, tmp_path)


def test_generators():
    def batches():
        while True:
            yield batch().float()

    def loop(model, source):
        for x in source:
            model(x)

    source = batches()
    finds(read(caught(loop, Net().half(), source)))
    next(source)  # it goes on

    def thrown():
        model = Net().half()
        for x in batches():
            yield model(x)

    finds(read(caught(lambda: list(thrown()))))
    finds(read(caught(lambda: [m(x) for m in (Net().half(),) for x in batches()])))

    async def stream():
        for x in itertools.islice(batches(), 3):
            yield x

    async def train(model):
        async for x in stream():
            model(x)

    finds(read(caught(asyncio.run, train(Net().half()))))


def test_classes_decorators_and_callbacks():
    model = Net().half()

    class Trainer:
        __slots__ = ("model", "__dict__")

        def __init__(self):
            self.model = model

        def __call__(self, x):
            return self.run(x=x)

        @torch.no_grad()
        def run(self, **inputs):
            return self.model(inputs["x"])

    finds(read(caught(Trainer(), torch.ones(2, 4))))
    finds(read(caught(lambda: list(map(model, [torch.ones(2, 4)])))))
    finds(read(caught(lambda: sorted([1], key=lambda _: model(torch.ones(2, 4))))))

    class Deleted:
        def __enter__(self):
            return self

        def __exit__(self, *parts):
            return False

    def run(x):
        with Deleted():
            y = x.float()
            del x
            return model(y)

    finds(read(caught(run, torch.ones(2, 4))))


# ------------------------------------------------------------------ tensors of every kind


def mixed_with(make):
    def run(model, weight):
        x = make()
        return torch.matmul(x, weight)

    return caught(run, Net().half(), torch.ones(4, 4, dtype=HALF))


@pytest.mark.parametrize("make", [
    lambda: torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]),
    lambda: torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged),
    lambda: torch.eye(4).to_sparse(),
    lambda: torch.eye(4).to_sparse_csr(),
    lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    lambda: torch.quantize_per_tensor(torch.ones(4, 4), 0.1, 0, torch.qint8),
    lambda: torch.quantize_per_channel(torch.ones(4, 4), torch.ones(4), torch.zeros(4), 0,
                                       torch.quint8),
    lambda: torch.ones(4, 4, dtype=torch.float8_e4m3fn),
    lambda: torch.ones(4, 4, dtype=torch.complex64),
    lambda: torch.ones(4, 4).to_mkldnn(),
    lambda: torch.ones(4, 4).expand(3, 4, 4),
    lambda: torch.ones(4, 4, requires_grad=True) * 2,
    lambda: torch.ones(4, 4).neg().conj()._neg_view(),
    lambda: torch.empty(0, 4),
    lambda: nn.Parameter(torch.ones(4, 4)),
    lambda: torch.nn.Buffer(torch.ones(4, 4)),
    lambda: torch.ones(4, 4, dtype=torch.bool),
    lambda: torch.masked.masked_tensor(torch.ones(4, 4), torch.ones(4, 4) > 0),
], ids=["nested", "jagged", "coo", "csr", "bsr", "quantised", "channels", "float8", "complex",
        "mkldnn", "expanded", "graph", "neg", "none", "parameter", "buffer", "bool", "masked"])
@pytest.mark.filterwarnings("ignore")
def test_operands_of_every_kind(make):
    found = read(mixed_with(make))
    assert found.where["op"] == "matmul"


def attend(x, weight):
    return nn.functional.scaled_dot_product_attention(x, weight, weight)


def test_tensors_without_values():
    weight = torch.ones(1, 2, 4, dtype=HALF)
    found = read(caught(attend, torch.ones(1, 2, 4, device="meta"), weight.to("meta")))
    assert found.where["operands"][0]["device"] == "meta"
    read(caught(attend, torch.ones(1, 2, 4, device="meta"), weight))
    read(caught(lambda x: x.item(), torch.ones(1, device="meta")))


def test_inference_and_functorch_tensors():
    weight = torch.ones(4, 4, dtype=HALF)
    with torch.inference_mode():
        error = caught(lambda x: x @ weight, torch.ones(2, 4))
        read(error)
    read(error)
    read(caught(lambda: torch.func.vmap(lambda x: x @ weight)(torch.ones(2, 4))))
    read(caught(lambda: torch.func.grad(lambda x: (x @ weight).sum())(torch.ones(2, 4))))
    read(caught(lambda: torch.func.jvp(lambda x: x @ weight, (torch.ones(2, 4),),
                                       (torch.ones(2, 4),))))


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        error = caught(attend, torch.ones(1, 2, 4), torch.ones(1, 2, 4, dtype=HALF))
        found = read(error)
    assert found.where["op"] == "scaled_dot_product_attention"
    assert [o["dtype"] for o in found.where["operands"]][:2] == ["float32", "float16"]
    assert read(error).text() == found.text()


def test_an_autograd_function():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.to(x.dtype)

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.t(), None

    x = torch.ones(2, 4, requires_grad=True)
    weight = torch.ones(4, 4, dtype=HALF)
    read(caught(lambda: Scale.apply(x, weight).sum().backward()))

    class Wrong(Scale):
        @staticmethod
        def forward(ctx, x, weight):
            return x @ weight

    read(caught(Wrong.apply, x, weight))


def test_numpy_and_other_arrays():
    np = pytest.importorskip("numpy")

    def run(model, array):
        return model(torch.from_numpy(array))

    finds(read(caught(run, Net(), np.full((2, 4), MARK))), dtype="float64")
    read(caught(lambda array: torch.add(torch.ones(4), array), np.full((4, 4), MARK)))
    read(caught(lambda rows: torch.tensor(rows), [[MARK] * 4, [MARK] * 3]))


# ------------------------------------------------------------------ it changes nothing


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
    assert found.found


def test_the_same_answer_twice():
    error = caught(step, Net().half(), batch())
    assert read(error).to_json() == read(error).to_json()
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


# ------------------------------------------------------------------ it keeps nothing alive


@pytest.fixture
def no_collector():
    """Reference counts alone must free it: a cycle would wait for the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def watched(*things):
    return [weakref.ref(thing) for thing in things]


def alive(references):
    return [type(seen()).__name__ for seen in references if seen() is not None]


def test_nothing_is_kept_once_the_exception_is_gone(no_collector):
    model, x = Net().half(), batch()
    seen = watched(model, x, model.body, model.body.weight)
    try:
        step(model, x)
    except RuntimeError as error:
        found = halftruths.autopsy(error)
    del model, x
    assert alive(seen) == [] and found.odd


def test_nothing_is_kept_when_the_reading_fails(no_collector, monkeypatch):
    def fault(self, *args, **kwargs):
        held = self
        raise ZeroDivisionError(held)

    monkeypatch.setattr(reader.Reader, "to_where", fault)
    model, x = Net().half(), batch()
    seen = watched(model, x, model.body)
    try:
        step(model, x)
    except RuntimeError as error:
        found = halftruths.autopsy(error)
    del model, x
    assert alive(seen) == []
    assert "stopped halfway (ZeroDivisionError)" in found.text() and not found.sure


def test_a_running_function_can_let_go(no_collector):
    def run():
        model, x = Net().half(), batch()
        seen = watched(model, x)
        try:
            step(model, x)
        except RuntimeError as error:
            found = halftruths.autopsy(error)
        del model, x
        assert alive(seen) == []
        return found

    assert run().odd


def test_a_generator_and_a_closure_can_let_go(no_collector):
    def stream(seen):
        model, x = Net().half(), batch()
        seen += watched(model, x)

        def inner(more):
            return step(model, x)  # noqa: F821

        try:
            inner(3)
        except RuntimeError as error:
            halftruths.autopsy(error)
        del inner, model, x
        yield alive(seen)

    source = stream([])
    assert next(source) == []


def test_a_module_can_let_go(no_collector):
    space = {"torch": torch, "cases": cases, "step": step, "Net": Net, "watched": watched}
    exec("model, x = Net().half(), torch.ones(2, 4)\nseen = watched(model, x)\n"
         "try:\n    step(model, x)\nexcept RuntimeError as error:\n    halftruths.autopsy(error)\n"
         "del model, x", space)
    assert alive(space["seen"]) == []


def test_a_frame_that_is_still_held_lets_go_of_what_it_dropped(no_collector):
    """The exception is kept, and with it its frames; but not what they had deleted before."""
    seen = []

    def run(model):
        x = batch()
        seen.extend(watched(x))
        y = x.double()
        del x
        return model(y)

    error = caught(run, Net().half())
    finds(read(error), dtype="float64")
    assert alive(seen) == []


def test_a_chain_and_a_backward_are_let_go(no_collector):
    model, x = Net().half(), batch()
    seen = watched(model, x)
    try:
        try:
            step(model, x)
        except RuntimeError as error:
            raise ValueError("bad step") from error
    except ValueError as problem:
        halftruths.autopsy(problem)
    del model, x
    assert alive(seen) == []


def test_many_autopsies_leave_no_objects_behind():
    """Of one autopsy after another nothing is left: a reader that hoards fails here."""
    def once():
        try:
            step(Net().half(), batch())
        except RuntimeError as error:
            halftruths.autopsy(error)

    for _ in range(5):
        once()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(30):
        once()
    gc.collect()
    assert len(gc.get_objects()) - before < 100


def test_nothing_is_held_but_text():
    found = read(caught(step, Net().half(), batch()))
    waiting, seen = [vars(found)], set()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        assert type(thing) in (dict, list, tuple, str, int, bool, float, type(None)), thing
        if isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple)):
            waiting += thing


# ------------------------------------------------------------------ it shows no values, no markup


def test_no_value_of_a_tensor_is_shown():
    """`read` looks for the mark in all that is said; here it is everywhere."""
    model = Net().half()
    model.register_buffer("scale", torch.tensor(MARK))
    model.plain = torch.tensor([MARK])
    number = MARK
    things = {"mask": batch(), "number": number, "list": [number] * 3}

    def run(model, things, scale=MARK):
        x = things["mask"] * things["number"] + number * scale
        return model(x.clamp(max=number), model.plain)

    read(caught(run, model, things))

    def writes(x, value):
        x[0] = value
        return x.masked_fill_(x > 0, value)

    read(caught(writes, torch.ones(2, dtype=HALF), MARK * 10))
    read(caught(lambda x, value: x.masked_fill(x > 0, value), torch.ones(2, dtype=HALF), MARK))
    read(caught(lambda x: x.masked_fill(x > 0, x), batch()))
    read(caught(lambda x: torch.nn.functional.cross_entropy(x, x[:, 0]), batch()))
    read(caught(lambda x: x[x], batch()))


EVIL = "<script>alert('1')</script><img src=x onerror=alert(1)>&lt;"


def test_markup_is_escaped_wherever_it_comes_from(imported):
    source = f"""
def run(model, batch):
    mask = batch["{EVIL}"]  # {EVIL}
    return model(mask, "{EVIL}")  # {EVIL}
"""
    _, run = imported(source, "<b onclick=1>&amp;.py")
    model = nn.ModuleDict({EVIL.replace(".", ""): Net()}).half()

    def outer(holder, batch):
        try:
            return run(holder[EVIL.replace(".", "")], batch)
        except RuntimeError as error:
            raise RuntimeError(f"{error} {EVIL}") from None

    found = read(caught(outer, model, {EVIL: torch.ones(2, 4)}))
    shown = found._repr_html_()
    assert "<script" not in shown and "<img" not in shown and "<b " not in shown
    assert "&lt;script&gt;" in shown and "&amp;lt;" in shown
    assert EVIL in found.text()

    class Strange(Exception):
        pass

    Strange.__name__ = EVIL
    read(caught(lambda: (_ for _ in ()).throw(Strange(EVIL))))

    def matmul(batch, weight):
        return torch.matmul(batch[EVIL], weight)

    source = f"""
def run(batch, weight):
    return batch["{EVIL}"] @ weight
"""
    _, run = imported(source)
    found = read(caught(run, {EVIL: torch.ones(2, 4)}, torch.ones(4, 4, dtype=HALF)))
    assert EVIL in found.where["operands"][0]["name"]


# ------------------------------------------------------------------ what it costs


def big(count):
    """A half model of about `count` modules, ten blocks a stage, each with its linear and norm."""
    def block():
        return nn.Sequential(OrderedDict(norm=nn.LayerNorm(4), linear=nn.Linear(4, 4),
                                         act=nn.ReLU(), drop=nn.Dropout(0.1)))

    stages = [nn.Sequential(*(block() for _ in range(10))) for _ in range(count // 51)]
    return nn.Sequential(*stages).half()


def seconds(times, function):
    """The least and the median of what a call takes of this process's own time, one thread.

    On a machine that does other work too a clock on the wall would time that.
    """
    found = []
    for _ in range(times):
        start = time.thread_time()
        function()
        found.append(time.thread_time() - start)
    return min(found), sorted(found)[times // 2]


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_a_model_of_2000_modules_takes_less_than_100_ms(start, record_property):
    model = big(2_050)
    assert len(list(model.modules())) >= 2_000
    model[-1][-1].linear.float()
    error = caught(step, model, batch())

    def once():
        if start == "cold":  # as at a first autopsy: no source has been read yet
            linecache.clearcache()
        halftruths.autopsy(error).text()

    once()
    least, median = seconds(7, once)
    record_property("seconds", [least, median])
    print(f"{start}: best {1000 * least:.0f} ms, median {1000 * median:.0f} ms")
    assert least < 0.1


NOTHING_INSTALLED = """
import gc, sys, threading, warnings
import torch
from torch import nn

def look():
    spaces = {"module": nn.Module, "tensor": torch.Tensor, "torch": torch, "linear": nn.Linear,
              "functional": nn.functional, "hooks": nn.modules.module, "autograd": torch.autograd,
              "overrides": torch.overrides, "storage": torch.storage}
    found = {(name, key): id(value) for name, space in spaces.items()
             for key, value in vars(space).items()}
    found |= {("global hooks", key): len(value) for key, value in vars(nn.modules.module).items()
              if key.startswith("_global") and hasattr(value, "__len__")}
    found["python"] = (sys.gettrace(), sys.getprofile(), sys.excepthook, sys.displayhook,
                       sys.unraisablehook, threading.excepthook, list(sys.meta_path),
                       list(sys.path_hooks), gc.callbacks[:], warnings.showwarning,
                       torch.get_rng_state().tolist()[:8], torch.is_grad_enabled())
    found["model"] = {key: id(value) for key, value in vars(model).items()}
    return found

model = nn.Linear(4, 4)
x = torch.ones(2, 4)
model(x)
before = look()
import cases.halftruths.exceptions.answer
import cases
import cases.halftruths.script, cases.halftruths.magic, cases.halftruths.pytest_plugin
after = look()
changed = [key for key in before if before[key] != after[key]]
new = [key for key in after if key not in before]
assert not changed and not new, (changed, new)
try:
    model(x.double())
except RuntimeError as error:
    assert halftruths.autopsy(error).odd == {"name": "input", "dtype": "float64"}
last = look()
assert [key for key in before if before[key] != last[key]] == []
print("nothing")
"""


def at(torch_id, source, folder):
    """Run a program with a torch; return what it prints."""
    here = {"command": [sys.executable], "env": {}}
    found = here if torch_id == torches.current() else torches.interpreter(torch_id)
    path = folder / "program.py"
    path.write_text(source)
    env = {**os.environ, **found["env"], "PYTHONNOUSERSITE": "1", "PYTHONIOENCODING": "utf-8"}
    env["PYTHONPATH"] = os.pathsep.join(
        [str(torches.ROOT), *filter(None, [found["env"].get("PYTHONPATH")])])
    done = subprocess.run([*found["command"], str(path)], capture_output=True, env=env,
                          encoding="utf-8")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


LIVE = [pytest.param(name, marks=pytest.mark.skipif(not torches.is_live(name),
                                                    reason=f"{name} is not live here"))
        for name in (torches.current(), "torch-1.13")]


@pytest.mark.parametrize("torch_id", LIVE)
def test_a_healthy_forward_costs_nothing(torch_id, tmp_path):
    """Nothing is put on torch, on Python or on a model: neither by the import nor by an autopsy."""
    assert at(torch_id, NOTHING_INSTALLED, tmp_path).strip() == "nothing"


OLD = """
import json
import torch
from torch import nn
import cases
from cases.lab.run import call, fixed_run, steady

def caught(function, *args):
    try:
        function(*args)
    except Exception as error:
        found = halftruths.autopsy(error)
        assert "stopped halfway" not in found.text(), found.text()
        found._repr_html_()
        return json.loads(json.dumps(found.to_json()))
    raise AssertionError("nothing was raised")

def layer(model, x):
    return model(x)

def operator(x, weight):
    return x.transpose(0, 1) @ weight

def written(x, value):
    x[0] = value

def filled(x):
    return x.masked_fill(x > 0, -1e9)

answers = {
    "layer": caught(layer, nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4).double()),
    "operator": caught(operator, torch.ones(4, 2), torch.ones(4, 4).double()),
    "loss": caught(nn.functional.cross_entropy, torch.ones(2, 4), torch.ones(2).int()),
    "conv": caught(nn.Conv2d(1, 1, 1).double(), torch.ones(1, 1, 2, 2)),
    "put": caught(lambda x, i, v: x.index_put_((i,), v), torch.ones(4), torch.tensor([0]),
                  torch.ones(1).double()),
    "fill": caught(filled, torch.ones(4).half()),
    "lazy": caught(layer, nn.LazyLinear(4), torch.ones(2, 4).int()),
    "plain": caught(lambda: [][1]),
}
for name in cases.NAMES:
    case = cases.load(name)
    try:
        with steady():
            call(fixed_run(case, case.setting(), (), "cpu")[0])
    except Exception as error:
        found = halftruths.autopsy(error)
        assert "stopped halfway" not in found.text(), found.text()
        answers[name] = json.loads(json.dumps(found.to_json()))
print("ANSWERS" + json.dumps(answers))
"""


@pytest.fixture(scope="module", params=LIVE)
def answers(request, tmp_path_factory):
    """What the autopsy says on a torch: {name: Autopsy in JSON}."""
    said = at(request.param, OLD, tmp_path_factory.mktemp("old"))
    return request.param, json.loads(said.split("ANSWERS")[1])


def test_plain_failures_on_the_oldest_torch_too(answers):
    torch_id, answers = answers
    for name, odd, op in (("layer", "input", "linear"), ("conv", "input", "conv2d")):
        assert answers[name]["odd"]["name"] == odd and answers[name]["where"]["op"] == op
        assert answers[name]["odd"]["dtype"] == ("float64" if name == "layer" else "float32")
    assert answers["operator"]["where"]["op"] == "matmul"
    assert {o["dtype"] for o in answers["operator"]["where"]["operands"]} == {"float32", "float64"}
    assert answers["put"]["where"]["op"] == "index_put_"
    assert answers["plain"]["where"] is None and not answers["plain"]["sure"]


def test_the_cases_on_the_oldest_torch_too(answers):
    torch_id, answers = answers
    told = {name: answers[name]["case"] for name in cases.NAMES if name in answers}
    expected = {"encoder_bf16": "encoder_bf16", "llama_vision": "llama_vision",
                "chatglm_prefix": "chatglm_prefix"}
    if torch_id == "torch-1.13":  # half has no kernels there, and three end at their first
        expected |= {"chatglm_prefix": "cpu_half", "cpu_half": "cpu_half",
                     "mask_overflow": "cpu_half"}
        assert told.pop("grad_scaler") is None  # autocast itself refuses float16: no operation
    assert told == expected
    for name in told:
        assert answers[name]["where"] is not None, name
