"""The frames of a traceback as Sites: where each stood, what it was busy with, its source.

A Site and what it holds must not outlive the reading.
"""

import ast
import functools
import itertools
import linecache
import os
import sys
import sysconfig
import threading
import traceback
import types
from pathlib import Path

from . import values
from .values import is_a, is_module

OUTER_FRAMES, INNER_FRAMES = 50, 150  # frames of a long traceback that are read
MAX_CHAIN = 10  # exceptions of a chain that are looked at
MAX_FILE_LINES = 5_000  # lines of a file that is parsed whole
INSTALLED = tuple(
    str(Path(path).resolve()) + "/"
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class Site:
    """One frame: where it stood, and the names that it knew.

    parent: the Site that called it, or None. span: (line, end line, column, end column) of the
    expression at work, columns in characters; None where Python does not tell (3.10).
    called: (code, id of its `self`) of the frame that it called, or None: the Site itself would
    close a circle, which holds all of the user's objects until a collection.
    candidates: the expressions that it may have been busy with, where Python does not tell which.
    """

    def __init__(self, filename, line, name, code, namespaces, parent, span=None, source=None):
        self.filename, self.line, self.name, self.code = filename, line, name, code
        self.locals, self.globals = namespaces
        self.parent, self.span, self.source = parent, span, source
        self.busy = {}  # what `working` found
        self.called, self.candidates = None, []

    @property
    def text(self):
        return linecache.getline(self.filename, self.line) if self.line < float("inf") else ""

    @property
    def module(self):
        """The nn.Module whose method this is, or None."""
        owner = self.locals.get("self")
        return owner if is_module(owner) else None

    @property
    def mine(self):
        """True for code of the reader's own: neither Python's, nor installed, nor generated."""
        if self.filename.startswith("<eval_with_key>") or self.filename.startswith("<") and \
                not linecache.getline(self.filename, 1):
            return False
        return not (self.filename.startswith(INSTALLED) or is_installed(self.filename))


@functools.lru_cache(maxsize=1_000)
def is_installed(filename):
    """True for a file of an installed package, wherever pip was told to put it."""
    if "site-packages" in filename or "dist-packages" in filename:
        return True
    return any(filename.startswith(entry.rstrip("/\\") + os.sep) and has_packages(entry)
               for entry in sys.path if type(entry) is str and len(entry) > 1)


@functools.lru_cache(maxsize=1_000)
def has_packages(folder):
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except (OSError, ValueError):
        return False


def namespaces_of(frame):
    """Return (locals, globals) of a frame, the first as a copy.

    Before Python 3.13 `f_locals` is a snapshot that the frame keeps, and with it every object,
    even after `del` in its function. It is emptied again, unless the user holds it: `locals()`
    is the same dict.
    """
    space = frame.f_locals
    if not frame.f_code.co_flags & 2:  # CO_NEWLOCALS: a function's; here a module's or a class's
        return dict(dict.items(space)) if is_a(space, dict) else {}, frame.f_globals
    copy = dict(space)
    # Under a debugger Python writes the snapshot back into the frame: then it must stay whole.
    traced = sys.gettrace() is not None or frame.f_trace is not None
    # Its owners are the frame, `space` and the argument, if the user has not asked for it.
    if type(space) is dict and not traced and sys.getrefcount(space) <= 3:
        space.clear()
    return copy, frame.f_globals


def sites(error):
    """Return the Sites of an exception's traceback, outermost first."""
    raised = list(traceback.walk_tb(asked(error, "__traceback__")))
    places = positions(asked(error, "__traceback__"))
    if len(raised) > OUTER_FRAMES + INNER_FRAMES:
        raised = raised[:OUTER_FRAMES] + raised[-INNER_FRAMES:]
        places = places[:OUTER_FRAMES] + places[-INNER_FRAMES:]
    found, seen = [], {}
    for (frame, line), span in zip(raised, places, strict=True):
        code = frame.f_code
        linecache.checkcache(code.co_filename)
        linecache.lazycache(code.co_filename, frame.f_globals)
        caller = found[-1] if found else None
        # A frame that an exception was thrown into again is there twice; its caller is the first's.
        caller = seen[id(frame)].parent if id(frame) in seen else caller
        found.append(Site(code.co_filename, line or 0, code.co_name, code, namespaces_of(frame),
                          caller, span))
        if caller is not None:
            caller.called = code, id(found[-1].locals.get("self"))
        seen.setdefault(id(frame), found[-1])
    return found


def positions(tb):
    """Return the span of the expression at work in each frame; None before Python 3.11."""
    spans = []
    while tb is not None:
        span, code = None, tb.tb_frame.f_code
        if tb.tb_lasti >= 0 and hasattr(code, "co_positions"):
            at = next(itertools.islice(code.co_positions(), tb.tb_lasti // 2, None), (None,))
            if None not in at:
                line, end, column, end_column = at
                span = (line, end, characters(code.co_filename, line, column),
                        characters(code.co_filename, end, end_column))
        spans.append(span)
        tb = tb.tb_next
    return spans


def characters(filename, line, column):
    """Columns count bytes of UTF-8; return one in characters."""
    return len(linecache.getline(filename, line).encode()[:column].decode("utf-8", "ignore"))


def chain(error):
    """Return the exceptions that led to `error`, itself first, as Python would print them."""
    found = [error]
    while len(found) < MAX_CHAIN:
        last = found[-1]
        before = asked(last, "__cause__")
        if before is None and not asked(last, "__suppress_context__"):
            before = asked(last, "__context__")
        if before is None or any(before is one for one in found):
            break
        found.append(before)
    return found


def asked(error, name):
    """An attribute of an exception as Python keeps it, whatever its class says of it."""
    return BaseException.__dict__[name].__get__(error)


_parsing = threading.Lock()


def tree(filename):
    """Return the ast of a file, or None where there is no source or too much of it."""
    key = filename, None
    if key not in values.memory.known:
        lines = linecache.getlines(filename)
        short = 0 < len(lines) <= MAX_FILE_LINES
        values.memory.known[key] = parse("".join(lines)) if short else None
    return values.memory.known[key]


def parse(source, first=1):
    """Return the ast of some lines, numbered from `first`, or None. They may be indented."""
    for text, shift in (source, 0), ("if 1:\n" + source, -1):
        found = parsed(text)
        if found is None:
            continue
        return ast.increment_lineno(found, first - 1 + shift) if first - 1 + shift else found
    return None


def parsed(text, mode="exec"):
    """Return the ast of a text, or None. Python 3.11 cannot parse in two threads at once
    (SystemError, python/cpython#106905): ours wait for each other, and try again after others'."""
    for _ in range(3):
        try:
            with _parsing:
                return ast.parse(text, mode=mode)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            break
    return None


def scope(site):
    """Return the ast node of the function, comprehension or module that `site` runs, or None."""
    if site.source is not None or site.code is None:
        return site.source
    if site.name == "<module>":
        return tree(site.filename)
    key = site.filename, site.code.co_firstlineno, site.name
    if key not in values.memory.known:
        # The lines of the function are enough, and quicker; a comprehension's do not parse.
        source = None if site.name in COMPREHENSIONS else function_lines(site)
        source = tree(site.filename) if source is None else source
        values.memory.known[key] = next(
            (node for node in ast.walk(source)
             if first_line_of_code(node) == key[1] and fits(node, site.name)), None,
        ) if source is not None else None
    return values.memory.known[key]


def function_lines(site):
    """Return the ast of the lines of a function alone, or None. Its block ends where the next
    line is indented no more than its first."""
    first = site.code.co_firstlineno
    lines = linecache.getlines(site.filename)[first - 1:]
    depth = indent(lines[0]) if lines else 0
    body = next((place for place, line in enumerate(lines) if indent(line) > depth), len(lines))
    end = next((place for place, line in enumerate(lines[body:], body)
                if line.strip() and indent(line) <= depth and line.lstrip()[0] != ")"), len(lines))
    return parse("".join(lines[:end]), first)


def indent(line):
    return len(line) - len(line.lstrip())


def first_line_of_code(node):
    """First line of a function's code: that of its first decorator. -1 of no function."""
    decorators = getattr(node, "decorator_list", None) or ()
    return min([d.lineno for d in decorators] + [getattr(node, "lineno", -1)])


def functions_around(filename, line):
    """Yield the functions of a file that a line stands in, the innermost first."""
    whole = tree(filename)
    found = [node for node in ast.walk(whole) if isinstance(node, (ast.FunctionDef, ast.Lambda))
             and node.lineno <= line <= node.end_lineno] if whole is not None else []
    yield from sorted(found, key=lambda node: -node.lineno)


COMPREHENSIONS = {"<listcomp>": ast.ListComp, "<setcomp>": ast.SetComp, "<dictcomp>": ast.DictComp,
                  "<genexpr>": ast.GeneratorExp, "<lambda>": ast.Lambda}


def fits(node, name):
    if name in COMPREHENSIONS:
        return isinstance(node, COMPREHENSIONS[name])
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name


def working(site):
    """Return the ast node of the call or operator that a Site was busy with, or None.

    Inside the ast of its function where that can be had, else parsed from the line alone.
    """
    key = site.line, id(site.source)
    if key not in site.busy:
        site.busy[key] = find_work(site)
    return site.busy[key]


def choose(site, node):
    """Take one of a Site's candidates for what it was busy with."""
    site.busy[site.line, id(site.source)] = node
    return node


def find_work(site):
    source = scope(site)
    if source is not None:
        nodes = [node for node in ast.walk(source) if is_work(node)]
        spans = [node for node in nodes if site.span is not None
                 and span_of(site.filename, worked_at(node)) == site.span]
        if spans:
            return spans[0]
        # Python 3.10 knows lines only.
        lines = [node for node in nodes if site.span is None
                 and node.lineno <= site.line <= node.end_lineno]
        if lines:
            lines = sorted(likely(lines, site), key=lambda node: abs(node.lineno - site.line))
            site.candidates = lines
            return lines[0]
    found = text_expression(site)
    if site.span is None and found is not None:
        site.candidates = likely([node for node in ast.walk(found) if is_work(node)], site)
    return found


def likely(nodes, site):
    """Of the expressions on a line those that called what comes next, or met a tensor."""
    called = [node for node in nodes if isinstance(node, ast.Call) and is_call_of(node, site)]
    return called or [node for node in nodes if may_fail(node, site)] or nodes


def is_call_of(node, site):
    """True for a call that is known to have led to the next Site."""
    callee = values.look_up(node.func, site)
    if site.called is None or callee is values.MISSING:
        return False
    code, owner = site.called
    if is_a(callee, types.MethodType):
        callee = callee.__func__
    if is_a(callee, types.FunctionType):
        return callee.__code__ is code
    return is_module(callee) and id(callee) == owner


def may_fail(node, site):
    """False for what is done to numbers, shapes, lists: no tensor is met there."""
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Subscript):
        value = values.look_up(node.value, site)
        is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        return not is_shape and (value is values.MISSING or values.is_tensor(value))
    return True


def is_work(node):
    """True for an expression, or an assignment to an entry or attribute, that may raise."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], (ast.Subscript, ast.Attribute))
    return isinstance(node, (ast.Call, ast.BinOp, ast.AugAssign, ast.UnaryOp, ast.Compare)) or \
        isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)


def worked_at(node):
    """The node whose columns Python tells: `x[i] = y` works on its target."""
    return node.targets[0] if isinstance(node, ast.Assign) else node


def text_expression(site):
    """The same from the text of the line alone. Its nodes have no place in the file."""
    text = site.text
    if site.span is not None:
        line, end, column, end_column = site.span
        lines = [linecache.getline(site.filename, number) for number in range(line, end + 1)]
        if all(lines):
            lines[-1] = lines[-1][:end_column]
            lines[0] = lines[0][column:]
            text = "".join(lines)
    found = expression(text) or expression(site.text.strip().removeprefix("return "))
    for node in ast.walk(found) if found is not None else ():
        for place in ("lineno", "end_lineno", "col_offset", "end_col_offset"):
            node.__dict__.pop(place, None)
    return found


def expression(text):
    """Return the outermost call or operator in a line of code, or None.

    The first line of a call that goes on is enough: the open brackets are closed.
    """
    text = text.strip()
    for candidate in (text, text + ")", text + "))", text + "0)"):
        found = parsed(f"({candidate}\n)", "eval")
        if found is None:
            continue
        return next((n for n in ast.walk(found.body) if isinstance(n, (ast.Call, ast.BinOp))), None)
    return None


def span_of(filename, node):
    return (node.lineno, node.end_lineno, characters(filename, node.lineno, node.col_offset),
            characters(filename, node.end_lineno, node.end_col_offset))


def show_file(filename):
    """Return a file's name as told: from here, from the place it is installed in, or `In [3]`.

    A notebook's cell lies in a file named by the kernel's process, which says nothing.
    """
    shell = sys.modules.get("IPython")
    shell = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    cells = getattr(getattr(shell, "compile", None), "_filename_map", {})
    if filename in cells:
        return f"In [{cells[filename]}]"
    if filename.startswith("<"):
        return filename
    try:
        path = Path(filename).absolute()
        places = [Path.cwd(), *(Path(entry or ".").absolute() for entry in sys.path
                                      if type(entry) is str and "\0" not in entry)]
    except (OSError, ValueError):  # the folder that was worked in is gone
        return Path(filename).name
    inside = [path.relative_to(place).as_posix() for place in places if place in path.parents]
    return min(inside, key=len) if inside else path.name
