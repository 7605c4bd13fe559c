"""What names in a frame stand for, read without running anyone's code and without keeping anything.

Values come from namespaces and `__dict__`s, never from `getattr`, and classes are not asked through
their metaclass: a property of a user's object is not ours to call.
"""

import ast
import builtins
import itertools
import threading
import types

import torch

ITEMS = 64  # tensors of one list that are told apart
MISSING = object()


class Memory(threading.local):
    """What one reading needs twice, of each thread its own: another's may end first."""

    def __init__(self):
        self.known = {}


memory = Memory()


def forget():
    """Drop sources, which may be edited, and models, which are not ours to keep."""
    memory.known.clear()


def is_a(value, kinds):
    """True for an instance. `isinstance` would ask the object, whose answer may be code."""
    return issubclass(type(value), kinds)


def one_of(value, others):
    """True if a value is one of these very objects. `in` would ask it: a class by its metaclass."""
    return any(value is other for other in others)


def class_name(value):
    """The name of an object's class, as Python keeps it."""
    return type.__dict__["__name__"].__get__(type(value))


def mro(kind):
    """The classes that a class is made of; not asked of its metaclass, which may be code."""
    return type.__dict__["__mro__"].__get__(kind)


def space_of(kind):
    """What a class itself defines, by name."""
    return type.__dict__["__dict__"].__get__(kind)


def module_name(value):
    """Name of the module that a class, a function or an object's class is of; "" if not known."""
    if is_a(value, (types.FunctionType, types.BuiltinFunctionType)):
        found = value.__module__
    else:
        kind = value if is_a(value, type) else type(value)
        found = type.__dict__["__module__"].__get__(kind)
    return found if type(found) is str else ""


def is_module(value):
    """True for an nn.Module."""
    return issubclass(type(value), torch.nn.Module)


def is_tensor(value):
    return issubclass(type(value), torch.Tensor)


def look_up(node, site):
    """Return what a name, an attribute or a constant index stands for; MISSING if not known."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for space in (site.locals, site.globals, vars(builtins)):
            if node.id in space:
                return space[node.id]
        return MISSING
    if isinstance(node, ast.Attribute):
        return attribute(look_up(node.value, site), node.attr)
    if isinstance(node, ast.Subscript):
        return item(look_up(node.value, site), look_up(node.slice, site))
    return MISSING


def attribute(owner, name):
    """Return an attribute that is stored, not computed; MISSING for any other."""
    if owner is MISSING:
        return MISSING
    if is_tensor(owner) and name == "dtype":
        with torch._C.DisableTorchFunction():
            return owner.dtype
    own = stored(owner)
    if is_module(owner):
        for store in ("_parameters", "_buffers", "_modules"):
            if name in held(owner, store):
                return held(owner, store)[name]
    if name in own:
        return own[name]
    for base in mro(owner if is_a(owner, type) else type(owner)):
        found = space_of(base).get(name, MISSING)
        if is_a(found, staticmethod):
            return found.__func__
        if is_a(found, classmethod):
            return types.MethodType(found.__func__, owner if is_a(owner, type) else type(owner))
        if is_a(found, types.FunctionType) and not is_a(owner, type):
            return types.MethodType(found, owner)
        if found is not MISSING:
            return MISSING if is_a(found, property) or "__get__" in names_of(type(found)) and \
                not is_a(found, types.FunctionType) else found
    return MISSING


def getter(owner, name):
    """Return the function behind a property of an object's class, not called; or None."""
    for base in mro(type(owner)) if owner is not MISSING else ():
        found = space_of(base).get(name, MISSING)
        if found is not MISSING:
            plain = is_a(found, property) and is_a(found.fget, types.FunctionType)
            return found.fget if plain and not is_torch(found.fget) else None
    return None


def names_of(kind):
    return {name for base in mro(kind) for name in space_of(base)}


def stored(owner):
    """Return the `__dict__` of an object, an empty one if it has none that is plain."""
    for base in mro(type(owner)):
        found = space_of(base).get("__dict__")
        if found is not None:  # a property by that name is not ours to call
            plain = is_a(found, (types.GetSetDescriptorType, types.MemberDescriptorType))
            own = found.__get__(owner) if plain else {}
            return by_plain_keys(own) if type(own) is dict else {}
    return {}


def held(module, store):
    """A module's parameters, buffers or children by name; empty if they are no plain dict."""
    found = stored(module).get(store)
    return by_plain_keys(found) if is_a(found, dict) else {}


def by_plain_keys(space):
    """A dict whose keys are texts and numbers of Python's own: looking in it runs no code."""
    if type(space) is dict and all(type(key) is str for key in dict.keys(space)):
        return space
    return {str.__str__(key) if is_a(key, str) else key: value for key, value in dict.items(space)
            if is_a(key, str) or type(key) is int}


def is_torch(value):
    """True for what belongs to torch itself: a class, a function, a module of it."""
    if value is MISSING or is_tensor(value):
        return False
    name = module_name(value)
    if is_a(value, types.ModuleType):
        name = stored(value).get("__name__", "")
    elif is_a(value, types.BuiltinFunctionType):
        if vars(torch).get(value.__name__) is value:  # torch.tensor names no module
            return True
        owner = value.__self__
        if owner is not None:
            name = stored(owner).get("__name__") if is_a(owner, types.ModuleType) else \
                module_name(owner)
    return type(name) is str and (name == "torch" or name.startswith(("torch.", "torch_")))


def is_numpy(value):
    if value is MISSING or value is None:
        return False
    name = stored(value).get("__name__", "") if is_a(value, types.ModuleType) else \
        module_name(value)
    if is_a(value, types.BuiltinFunctionType) and name == "builtins":
        name = ""
    return type(name) is str and name.split(".")[0] == "numpy"


def item(owner, key):
    """Return an entry of a plain dict, list or tuple, or of a container of modules."""
    if owner is MISSING or not is_key(key):
        return MISSING
    if is_module(owner):
        inner = held(owner, "_modules") or held(owner, "_parameters")
        if type(key) is int:
            return list(inner.values())[key] if -len(inner) <= key < len(inner) else MISSING
        return inner.get(key, MISSING)
    if not plain(owner, dict) and type(stored(owner).get("data")) is dict:
        owner = stored(owner)["data"]  # a UserDict, as tokenizers return
    if plain(owner, dict):
        return entry(owner, key)
    if one_of(type(owner), (list, tuple)) and type(key) is int and -len(owner) <= key < len(owner):
        return owner[key]
    return MISSING


def is_key(value):
    """True for a plain text or number. One of a class made of these may compare by code."""
    return one_of(type(value), (str, int))


def entry(owner, key):
    """Return an entry of a dict; MISSING without one.

    A key of the user's with the same hash would be asked whether it is equal: only plain keys are.
    """
    return next((value for own, value in dict.items(owner) if type(own) is type(key)
                 and own == key), MISSING)


def plain(value, kind):
    """True for a `kind`, or a class made of it that looks its entries up the same way."""
    return is_a(value, kind) and not any("__getitem__" in space_of(base) for base in
                                         itertools.takewhile(lambda base: base is not kind,
                                                             mro(type(value))))


def tensors_in(value, name):
    """Yield (name, tensor) of a tensor, or of those in a list, tuple or dict, one level deep."""
    if is_tensor(value):
        yield name, value
    elif plain(value, tuple) or plain(value, list):
        kind = tuple if is_a(value, tuple) else list
        for place, part in enumerate(kind.__getitem__(value, slice(ITEMS))):
            if is_tensor(part):
                yield f"{name}[{place}]", part
    elif plain(value, dict):
        for key, part in list(dict.items(value))[:ITEMS]:
            if type(key) is str and is_tensor(part):
                yield f"{name}[{key!r}]", part


def walk(root):
    """Return [(path, module)] of a model, each once, as named_modules does but by no code of it."""
    key = "walk", id(root)
    if key not in memory.known:
        found, seen = [("", root)], {id(root)}
        for path, module in found:
            for name, child in held(module, "_modules").items():
                if is_module(child) and id(child) not in seen:
                    seen.add(id(child))
                    found.append((f"{path}.{name}" if path else str(name), child))
        memory.known[key] = found
    return memory.known[key]


def own_tensors(module, stores=("_parameters", "_buffers")):
    """Yield (name, tensor) of a module's own parameters and buffers, not its children's."""
    for store in stores:
        for name, tensor in held(module, store).items():
            if is_tensor(tensor):
                yield name, tensor
