"""Which operand does not belong: compared with the model's parameters, or with what is in sight."""

import ast
from typing import NamedTuple

import torch

from ..dtypes import dtype_name
from . import failures, frames, values
from .bindings import own_nodes
from .calls import cast_of

INTO = ("index_put", "masked_scatter", "index_copy", "index_add", "scatter", "copy")


SURE, LIKELY, IF_NUMPY = "sure", "likely", "sure if its road begins in NumPy"


class Odd(NamedTuple):
    """Which operand is odd; `home` is the dtype that the others have, `why` a sentence's end.

    operand: None where no witness knows. if_numpy: to be known once its road was read: if NumPy
    made it, or by far most tensors are of the dtype `home`.
    """

    operand: failures.Operand | None
    home: torch.dtype | None
    known: bool
    if_numpy: bool
    why: str


class Household:
    """What a failure's tensors are compared with.

    census: that in words, once asked for; it is shown where no witness knows the odd operand.
    """

    def __init__(self, failure, sites):
        self.failure, self.sites = failure, sites
        self.census = ""
        self.pieces = {}  # how many tensors there are of each dtype

    def odd_of(self, floats):
        """Return the Odd of operands that disagree, by the first witness that knows.

        What belongs is what the model's parameters are; in code without a model, what the other
        tensors of the reader's functions are. A cast of one part that can be seen is what is odd
        where both are alike in number.
        """
        dtypes = [o.dtype for o in floats]
        self.elements, pieces = self.household()
        homes = [max(dtypes, key=lambda dtype, of=counted: of.get(real(dtype), 0))
                 for counted in (self.elements, pieces)]
        if self.failure.root is None and torch.float64 in dtypes and \
                torch.get_default_dtype() != torch.float64:
            self.elements = {}
        self.most = homes[0]
        self.counts = sorted((self.elements.get(real(d), 0) for d in set(dtypes)), reverse=True)
        self.evenly = homes[0] != homes[1] or \
            len({pieces.get(real(d), 0) for d in set(dtypes)}) == 1
        for witness in (self.by_far, self.by_its_conversion, self.by_number, self.by_numpy,
                        self.by_the_others, self.by_what_is_written_into, self.by_the_default):
            if (told := witness(dtypes)) is not None:
                home, weight, why = told
                operand = next((o for o in floats if o.dtype != home), None)
                return Odd(operand, home, weight == SURE, weight == IF_NUMPY, why)
        return Odd(None, None, False, False, self.census)

    # Each witness tells (dtype that belongs, weight, why the other is odd), or None.

    def by_far(self, dtypes):
        first, second = self.counts[:2]
        if first <= second or self.evenly and first < 4 * second:
            return None
        # Tensors that happen to be in sight are a weaker ground than a model, and one is none.
        sure = self.failure.root is not None or first > 1 and first >= 3 * second
        return self.most, SURE if sure else LIKELY, self.share()

    def by_its_conversion(self, dtypes):
        part = self.converted_part(dtypes) if self.counts[0] > self.counts[1] else None
        if part is None:
            return None
        return (next(d for d in dtypes if d != part), LIKELY,
                f"because a part of the model was converted to {dtype_name(part)}")

    def by_number(self, dtypes):
        return (self.most, LIKELY, self.share()) if self.counts[0] > self.counts[1] else None

    def by_numpy(self, dtypes):
        """float64 rarely comes on purpose: it is NumPy's default."""
        if torch.float64 not in dtypes:
            return None
        return (next(d for d in dtypes if d != torch.float64), IF_NUMPY,
                "because float64 rarely comes on purpose: it is NumPy's default")

    def by_the_others(self, dtypes):
        common = max(dtypes, key=dtypes.count)
        if len(dtypes) < 3 or dtypes.count(common) < 2:
            return None
        number = dtypes.count(common)
        return (common, LIKELY,
                f"because {number} of {len(dtypes)} operands are {dtype_name(common)}")

    def by_what_is_written_into(self, dtypes):
        if self.failure.op.rstrip("_") not in INTO:
            return None
        return (dtypes[0], LIKELY,
                f"because what it is written into is {dtype_name(dtypes[0])}")

    def by_the_default(self, dtypes):
        """Half was asked for by someone; the default comes unasked."""
        default = torch.get_default_dtype()
        if default not in dtypes or self.elements:
            return None
        return (next(d for d in dtypes if d != default), LIKELY,
                f"because {dtype_name(default)} is the default, which comes unasked")

    def share(self):
        """How many are of the dtype that most are, in words."""
        number, of = self.elements.get(real(self.most), 0), sum(self.elements.values())
        name = dtype_name(real(self.most))
        if self.largest() is not None:
            return f"because {number:,} of {of:,} parameters of the model are {name}"
        return f"because {number:,} of {of:,} tensors in the functions of this traceback are {name}"

    def mostly(self, home, odd):
        """True if by far most tensors are of the dtype `home`."""
        return self.pieces.get(home, 0) > 2 * self.pieces.get(odd, 0)

    def converted_part(self, dtypes):
        """The one of two dtypes that the frames show a part of the model converted to, or None."""
        for site in self.sites:
            source = frames.scope(site) if site.mine else None
            for node in own_nodes(source) if source is not None else ():
                if isinstance(node, ast.Call) and cast_of(node, site) in dtypes and \
                        isinstance(node.func, ast.Attribute):
                    base = values.look_up(node.func.value, site)
                    if values.is_module(base) and base is not self.failure.root:
                        return cast_of(node, site)
        return None

    def household(self):
        """Return ({dtype: elements}, {dtype: tensors}) of the model, or of all tensors in sight."""
        root = self.largest()
        elements, pieces = {}, {}
        if root is not None:
            tensors = {id(t): t for _, module in values.walk(root)
                       for _, t in values.own_tensors(module, ("_parameters",))}.values()
        else:
            tensors = {id(t): t for site in self.sites if site.mine
                       for name, value in site.locals.items()
                       for _, t in values.tensors_in(value, name)}.values()
        for tensor in tensors:
            if failures.is_floating(tensor.dtype):
                size = failures.size_of(tensor) if root is not None else 1
                dtype = real(tensor.dtype)
                elements[dtype] = elements.get(dtype, 0) + size
                pieces[dtype] = pieces.get(dtype, 0) + 1
        self.census = census(elements, root is not None)
        self.pieces = pieces
        return elements, pieces

    def largest(self):
        """The model in sight with most parameters: a layer kept in a list is in no module."""
        best, most, seen = self.failure.root, 0, set()
        for site in self.sites:
            for value in site.locals.values():
                if not values.is_module(value) or id(value) in seen:
                    continue
                seen.update(id(module) for _, module in values.walk(value))
                count = sum(failures.parameters_of(value).values())
                if count > most:
                    best, most = value, count
        return best

    def made(self, parameter, dtype):
        """The (Site, node) in the frames that gave a module's parameter its dtype, or None.

        A conversion of a module that holds it; else, for the default dtype, the line that made the
        smallest such module.
        """
        converted, created = [], []
        for site in self.sites:
            source = frames.scope(site) if site.mine else None
            for node in own_nodes(source) if source is not None else ():
                if not hasattr(node, "lineno") or node.lineno > site.line:
                    continue
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    size = self.holds(values.look_up(node.func.value, site), parameter)
                    if size is None and isinstance(node.func.value, ast.Call):
                        size = self.holds(self.assigned(node, source, site), parameter)
                    if size is not None and cast_of(node, site) == dtype:
                        converted.append((site, node))
                    elif size is not None and node.func.attr in ("append", "add_module",
                                                                 "register_parameter"):
                        created.append((size, site, node.args[-1] if node.args else node))
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    held = values.look_up(node.targets[0], site)
                    size = self.holds(held, parameter)
                    if size is not None and held is not self.failure.root:
                        created.append((size, site, node.value))
        if converted:
            return converted[-1]
        if created and dtype == torch.get_default_dtype():
            return min(created, key=lambda found: found[0])[1:]
        return None

    def assigned(self, call, source, site):
        """What `model = Net().half()` bound, where `call` is the right side."""
        return next((values.look_up(node.targets[0], site) for node in own_nodes(source)
                     if isinstance(node, ast.Assign) and node.value is call), None)

    def holds(self, module, parameter):
        """How many modules are in one that holds a parameter; None if it does not."""
        if not values.is_module(module):
            return None
        size, found = 0, False
        for _, part in values.walk(module):
            size += 1
            found = found or any(held is parameter for _, held in values.own_tensors(part))
        return size if found else None


def census(counted, model):
    """What a model's parameters are, or the tensors in sight, in words."""
    if not counted:
        return ""
    told = ", ".join(f"{number:,} {dtype_name(dtype)}" for dtype, number in
                     sorted(counted.items(), key=lambda pair: -pair[1]))
    return f"The model's parameters: {told}." if model else \
        f"Tensors in the functions of this traceback: {told}."


def real(dtype):
    """The dtype of a complex number's parts; any other as it is."""
    return {torch.complex64: torch.float32, torch.complex128: torch.float64,
            torch.complex32: torch.float16}.get(dtype, dtype)
