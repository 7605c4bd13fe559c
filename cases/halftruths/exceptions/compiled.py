"""Where a compiled function failed: its graph's line, told as the line of source that made it.

Compiled code runs as a generated graph, whose frames name no file. The graph's nodes remember the
lines that they come from, and the operands are the graph's own locals.
"""

import ast
import re
import types

from . import failures, frames, values
from .road import Function, own_nodes

LINE = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')


def failing(sites):
    """Return the Failure of a graph that torch.compile made, or None if none was at work."""
    graph = next((site for site in reversed(sites)
                  if site.filename.startswith("<eval_with_key>")), None)
    if graph is None or (busy := frames.working(graph)) is None:
        return None
    trace = lines_of(graph)
    caller = next((site for site in reversed(sites[:sites.index(graph)]) if site.mine), None)
    operands = list(failures.operands_of(busy, graph))
    if not trace or caller is None or not operands:
        return None
    site = at_line(caller, trace)
    call = called_at(site)
    root, path, module = holder(sites, operands)
    operands = list(named(operands, call, module))
    return failures.Failure(site, call or busy, operands, module, path, root,
                            failures.operation(busy))


def lines_of(graph):
    """Return [(file, line, function)] of the reader's own that made the graph's failing node."""
    statement = graph.text.partition("=")[0].strip()
    node = values.stored(values.stored(graph.locals.get("self")).get("_graph")).get("_root")
    for _ in range(100_000):
        node = values.stored(node).get("_next") or getattr(node, "_next", None)
        if node is None or getattr(node, "op", None) == "root":
            return []
        if node.name == statement:
            found = LINE.findall(node.meta.get("stack_trace") or "")
            return [(file, int(line), name) for file, line, name in found if is_mine(file)]
    return []


def is_mine(file):
    return frames.Site(file, 1, "", None, ({}, {}), None).mine


def at_line(caller, trace):
    """The Site of a trace's last line: the compiled function's frame, or a call from it."""
    file, line, _ = trace[0]
    site = frames.Site(file, line, caller.name, caller.code, (caller.locals, caller.globals),
                       caller.parent)
    for _, line, _ in trace[1:]:
        call = called_at(site)
        callee = values.look_up(call.func, site) if call is not None else None
        function = values.attribute(callee, "forward") if values.is_module(callee) else callee
        if values.is_a(function, types.MethodType):
            site = Function(function.__func__, function.__self__, site, (call, site.line))
        elif values.is_a(function, types.FunctionType):
            site = Function(function, values.MISSING, site, (call, site.line))
        else:
            return site
        site.line = line
    return site


def called_at(site):
    """The last call on a Site's line: of a module, if there is one."""
    source = frames.scope(site)
    calls = [node for node in own_nodes(source) if isinstance(node, ast.Call)
             and node.lineno <= site.line <= node.end_lineno] if source is not None else []
    modules = [node for node in calls if values.is_module(values.look_up(node.func, site))]
    return (modules or calls or [None])[0]


def holder(sites, operands):
    """Return (root, path, module) that holds one of the operands as a parameter; Nones without."""
    held = {id(operand.tensor) for operand in operands}
    for site in sites:
        for value in site.locals.values():
            for path, module in values.walk(value) if values.is_module(value) else ():
                if any(id(tensor) in held for _, tensor in values.own_tensors(module)):
                    return value, path, module
    return None, None, None


def named(operands, call, module):
    """Yield the operands by the names of a layer, and the nodes of the call in the source."""
    own = {id(tensor): name for name, tensor in values.own_tensors(module)} if module is not None \
        else {}
    given = iter([part for _, part in failures.arguments_of(call)
                  if part is not getattr(call.func, "value", None)] if call is not None else ())
    for operand in operands:
        if id(operand.tensor) in own:
            yield operand._replace(name=own[id(operand.tensor)], node=call and call.func)
        else:
            node = next(given, operand.node)
            yield operand._replace(name="input" if own else operand.name, node=node)
