"""Nothing of the user's is called in any failure of the corpus, whatever rule reads it.

Each script is run, and then its modules, tensors and exceptions get classes that note every call:
`==`, `hash`, truth, length, attributes, and those of their metaclass. The answer stays the same.
"""

import ast
import functools
import types
from pathlib import Path

import pytest
import torch
from scenes import CALLS, HALF, Net, caught, finds, read
from torch import nn

from cases import halftruths
from cases.halftruths.exceptions import frames
from tests.halftruths.test_autopsies import SCRIPTS, run

ASKED = ("__eq__ __ne__ __lt__ __gt__ __le__ __ge__ __bool__ __len__ __iter__ __contains__ "
         "__repr__ __str__ __format__ __getitem__ __index__ __int__ __float__ __array__ "
         "__call__ __dir__ __sizeof__ __reduce__").split()


def noted(name):
    def call(self, *args, **kwargs):
        CALLS.append(name)
        raise RuntimeError(f"{name} was called")

    return call


@functools.cache
def noting(base):
    """A class of the same name, made of another, that notes what is asked of it and its objects."""
    meta = type(base)
    of_class = {name: noted(f"class's {name}") for name in (
        "__eq__", "__ne__", "__bool__", "__len__", "__iter__", "__contains__", "__getattr__",
        "__getattribute__", "__instancecheck__", "__subclasscheck__", "__repr__", "__dir__")}
    of_class["__hash__"] = noted("class's __hash__")
    of_object = {name: method for name, method in type.__getattribute__(base, "__dict__").items()
                 if isinstance(method, types.FunctionType)}  # its source is read there
    of_object |= {name: noted(name) for name in ASKED}
    if not issubclass(base, torch.Tensor):  # torch itself looks at a tensor's hash and attributes
        of_object |= {name: noted(name) for name in ("__getattr__", "__getattribute__", "__hash__")}
    of_object["__torch_function__"] = classmethod(noted("__torch_function__"))
    of_object |= {"__module__": base.__module__, "__qualname__": base.__qualname__}
    # The class is made first, and its metaclass changed: making it asks the metaclass, too.
    noter = type(f"Noting{meta.__name__}", (meta,), {})
    made = noter(base.__name__, (base,), of_object)
    for name, method in of_class.items():
        setattr(noter, name, method)
    return made


def things_in(error):
    """The modules and tensors that the frames of a traceback lead to, by their identity."""
    found, waiting = {}, []
    for site in frames.sites(error):
        waiting += site.locals.values()
    while waiting:
        thing = waiting.pop()
        if id(thing) in found:
            continue
        if isinstance(thing, nn.Module):
            found[id(thing)] = thing
            for store in (thing._modules, thing._parameters, thing._buffers):
                waiting += store.values()
        elif type(thing) in (torch.Tensor, nn.Parameter):
            found[id(thing)] = thing
        elif type(thing) in (list, tuple) and len(thing) < 100:
            waiting += thing
        elif type(thing) is dict and len(thing) < 100:
            waiting += thing.values()
    return list(found.values())


@pytest.fixture(autouse=True)
def switches():
    yield
    torch.set_default_dtype(torch.float32)
    CALLS.clear()


@pytest.mark.parametrize("path", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_no_rule_asks_the_users_objects(path):
    error = run(path, path.read_text(encoding="utf-8"))
    plain = halftruths.autopsy(error).to_json()
    changed = []
    for thing in things_in(error):
        before = object.__getattribute__(thing, "__class__")
        try:
            object.__setattr__(thing, "__class__", noting(before))
        except TypeError:  # its layout is its own: a scripted module, a lazy one
            continue
        changed.append((thing, before))
    CALLS.clear()
    try:
        found = halftruths.autopsy(error)
        assert CALLS == [], "it ran code of the user's"
    finally:
        for thing, before in changed:
            object.__setattr__(thing, "__class__", before)
    assert "stopped halfway" not in found.text()
    assert changed or plain["where"] is None or not plain["where"]["operands"]
    assert found.to_json() == plain


# ------------------------------------------------------------------ where the corpus does not go


class Equal(str):
    """A text with the hash of a text: looking for one finds the other, and asks it."""

    __hash__ = str.__hash__
    __eq__ = __ne__ = __str__ = __repr__ = __format__ = noted("a key's __eq__")


class Compared(type):
    """A class that says itself what it is equal to."""

    __eq__ = __ne__ = __bool__ = __instancecheck__ = __subclasscheck__ = noted("a class's __eq__")
    __hash__ = type.__hash__


class Judged(torch.Tensor):
    """A tensor that says itself what it is equal to, and whether it is true."""

    __eq__ = __ne__ = __bool__ = __contains__ = __len__ = noted("a tensor's __eq__")
    __hash__ = torch.Tensor.__hash__
    __torch_function__ = torch._C._disabled_torch_function_impl


class Kept(metaclass=Compared):
    dtype = HALF


class Called:
    """A function that is none; what its name is, it computes."""

    __getattr__ = noted("a callable's __getattr__")

    def __call__(self, x):
        return x @ torch.ones(4, 4, dtype=HALF)


def test_what_a_forward_pre_hook_returned_is_not_compared():
    def replaced(module, args):
        return (args[0].as_subclass(Judged),)

    def run(model):
        x = torch.ones(2, 4)
        return model(x)

    model = Net().half()
    model.body.register_forward_pre_hook(replaced)
    found = finds(read(caught(run, model)))
    assert found.where["module"] == "body"
    assert found.cure is None and not found.sure  # the hook's line is in no frame
    assert "Where `args[0].as_subclass` got its dtype cannot be read from here." in found.asks


def test_what_a_forward_hook_returned_is_not_compared():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).half())
    model[0].register_forward_hook(lambda module, args, result: result.as_subclass(Judged))
    found = finds(read(caught(lambda model, x: model(x), model, torch.ones(2, 4))))
    assert found.where["module"] == "1" and not found.sure
    assert found.asks[0].startswith("Which dtype is meant at this line: float16, as is assumed")


def test_the_keys_of_a_dict_are_not_compared():
    for key in ("mask", "other"):
        batch = {Equal(key): 1, "more": 2}
        dict.__setitem__(batch, "x", torch.ones(2, 4))
        CALLS.clear()

        def put(model, batch=batch):
            x = batch["x"]
            return model(x)

        finds(read(caught(put, Net().half())), cure="return model(x.to(torch.float16))")
    model = Net().half()
    model._modules[Equal("extra")] = nn.Linear(4, 4)
    model.__dict__[Equal("x")] = 3
    finds(read(caught(lambda model, x: model.body(x), model, torch.ones(2, 4))))


def test_classes_are_not_compared():
    def run(model, kept, factor=Kept):
        size = factor
        x = torch.ones(2, 4) * kept.scale
        y = torch.add(x, 0) if size is factor else kept(x)
        return model(y)

    kept = Kept()
    kept.scale = 2
    made = "x = torch.ones(2, 4, dtype=torch.float16) * "
    finds(read(caught(run, Net().half(), kept)), cure=f"{made}kept.scale",
          asks="may take either branch")  # kept is not asked what it is equal to

    def doubled(model, kind=Kept):
        x = torch.ones(2, 4) * (3 if kind is None else 2) + len([kind])
        with torch.autocast("cpu", enabled=False):
            return model(x)

    finds(read(caught(doubled, Net().half())),
          cure=f"{made}(3 if kind is None else 2) + len([kind])")


def test_a_callable_in_a_partial_is_not_asked_its_name():
    def run(x):
        call = functools.partial(Called(), x)
        return call()

    found = finds(read(caught(run, torch.ones(2, 4))), "torch.ones(4, 4, dtype=HALF)", "float16",
                  cure="return x @ torch.ones(4, 4, dtype=torch.float32)",
                  asks="Which dtype is meant at this line")
    assert found.where["op"] == "matmul"


def test_what_autocast_was_given_is_not_compared():
    class Device(str):
        __eq__ = __ne__ = __bool__ = noted("a device's __eq__")
        __hash__ = str.__hash__

    def run(model, device):
        x = torch.ones(2, 4)
        if device is None:
            with torch.autocast(device):
                return model(x)
        with around(device):
            return model(x)

    def around(device):
        return torch.autocast("cpu", enabled=False)

    finds(read(caught(run, Net().half(), Device("cpu"))),
          cure="x = torch.ones(2, 4, dtype=torch.float16)")


# ------------------------------------------------------------------ and by the source


MODULES = sorted(Path(frames.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_class_and_no_missing_value_is_sought_with_in(path):
    """`x in (a, b)` compares with `==`. Classes are compared by `is`, and so is MISSING."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
            names = {part.id for part in asked if isinstance(part, ast.Name)}
            of_class = [part for part in asked if isinstance(part, ast.Call)
                        and ast.unparse(part.func) in ("type", "mro")]
            compared = [op for op in node.ops if not isinstance(op, (ast.Is, ast.IsNot))]
            told = f"{path.name}:{node.lineno}: {ast.unparse(node)}"
            assert not compared or not ("MISSING" in names or of_class), told
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            if ast.unparse(node.value.func) == "type" and node.attr.startswith("__"):
                owner = ast.unparse(node.value.args[0])
                assert owner in ("node.op", "fault"), f"{path.name}:{node.lineno}: {node.attr}"
