"""The scenes of the promises, and what must be true of each Autopsy: `read` holds it to that.

The autopsy promises: it never raises, runs nobody's code, changes and keeps nothing. The scenes are
failures of dtypes in the company of everything that could trip a reader of frames.
"""

import html.parser
import json
import os
import re
import subprocess
import sys
import types
import weakref
from collections import UserDict, UserList

import pytest
import torch
from torch import nn

from cases import halftruths
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
    """The text of an HTML, the names of its tags, and where its links lead."""

    def __init__(self, source):
        super().__init__()
        self.words, self.tags, self.handlers, self.links = [], set(), [], []
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.links += [value for name, value in attributes if name in ("href", "src")]

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
                          "th", "tbody", "caption", "strong", "a"}
    assert shown.handlers == []
    assert all(re.match("https?://", link) and link in text for link in shown.links)
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


SOURCE = """
def run(model, x):
    mask = x.float()
    return model(mask)
"""


def imported(tmp_path):
    """Return a function that writes a file, runs it, and returns (path, its function `run`)."""

    def make(source=SOURCE, name="user.py"):
        path = tmp_path / name
        path.write_text(source)
        space = {"torch": torch}
        exec(compile(source, str(path), "exec"), space)
        return path, space["run"]

    return make


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
