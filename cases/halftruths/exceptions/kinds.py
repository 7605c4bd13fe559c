"""Reads an exception: which kind of failure it is, which operand is odd, and what cures it."""

import ast
import linecache
import re

import torch

from ..dtypes import dtype_name
from ..messages.words import dtypes_in
from . import calls, compiled, cure, failures, frames, road, values, workers
from .autocast import autocast_around
from .bindings import branch, is_rebound, own_nodes, positional, statement_line, text
from .home import INTO, Household

ABOUT_DTYPES = re.compile(
    r"\b(?:d?types?|scalar types?|data ?types?|float\d*|half|b?float16|double|long|int\d*|"
    r"precision|overflow|fp16|integral|tensors used as indices)\b|BFloat|Half|Double|ComplexFloat",
    re.IGNORECASE)
NOT_DTYPES = re.compile(r"modified by an inplace operation|graph a second time|"
                        r"does not require grad|shapes? .*cannot be multiplied|size mismatch|"
                        r"must match the size|"
                        r"index out of range|out of bounds|is invalid for input of size|"
                        r"Expected all tensors to be on the same device", re.IGNORECASE)
NO_KERNEL = re.compile(r"not implemented for '(\w+)'|[Ll]ow precision dtypes not supported\. Got "
                       r"(\w+)|Unsupported dtype (\w+)|must be either (float or double) dtype")
# A list of what is allowed names dtypes that no operand has; what was met follows "got".
ALLOWED = re.compile(r"only support|supported for|must be (?:either|one)|one of the|to be bool or|"
                     r"is not supported|could not infer output dtype|floating[- ]point d?type",
                     re.IGNORECASE)
MET = (re.compile(r"attn_mask\.dtype: (?:c10::)?(\w+)"), re.compile(
    r"(?:got:?|found|with an?|dtype is:) (?:a tensor (?:with dtype|of scalar type:) )?"
    r"(?:c10::|torch\.)?(\w+)",
    re.IGNORECASE))
HOOK = re.compile(r"hook '?(\w+)'? has changed the (?:type|dtype)|hook .* returned", re.IGNORECASE)
OVERFLOW = re.compile(r"cannot be converted to type (?:at::|c10::)?(\w+) without overflow")
INDICES = re.compile(r"scalar types: Long, Int|must be integral|tensors used as indices must be|"
                     r"expected scalar type Long but found|"
                     r"Expected (?:dtype )?int(?:32|64).*for index|index.*must be.*(?:int|long)|"
                     r"\"\w*nll_loss\w*\" not implemented for '(?:Int|Half|Float|Double)'|"
                     r"expected target.* Long", re.IGNORECASE)
SCALER = {
    "Attempting to unscale FP16 gradients":
        "GradScaler wants float32 weights: it unscales float32 gradients only.",
    "No inf checks were recorded":
        "scaler.step found no gradient: no backward reached the parameters of this optimizer.",
    "unscale_() has already been called":
        "scaler.unscale_ was called twice for one optimizer between two calls of scaler.update().",
    "unscale_() is being called after step()":
        "scaler.unscale_ comes before scaler.step, once.",
    "scale_() has already been called": "the loss was scaled twice.",
}
FUSED = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
BACKWARD = ("torch/autograd/graph.py", "torch/autograd/__init__.py")
NAMES = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32,
         "double": torch.float64, "long": torch.int64, "int": torch.int32, "bool": torch.bool,
         "short": torch.int16, "char": torch.int8, "byte": torch.uint8}
ACTIVATIONS = ("matmul", "bmm", "baddbmm", "scaled_dot_product_attention", "einsum", "cat",
               "sdpa_attention_forward", "multi_head_attention_forward")
WEIGHTED = ("linear", "conv1d", "conv2d", "conv3d", "addmm", "embedding")


def message_of(error):
    try:
        # Addresses say nothing, and differ from run to run.
        return re.sub(r" at 0x[0-9a-fA-F]+", "", str(error)).strip()
    except Exception:
        return "(its message cannot be read)"


class Reader:
    """Reads one exception into an Autopsy. It holds the user's objects, and goes with its call."""

    def __init__(self, error, result):
        self.error, self.message, self.result = error, message_of(error), result
        self.away = False  # it was raised in another process
        self.unsure = False
        self._house = None

    def read(self):
        self.sites, self.failure = self.find()
        result = self.result
        if self.failure is None:
            result.said = "No frame of this traceback holds a tensor operation."
            result.asks.append("Is this the exception itself, with its traceback? Of a log alone, "
                               "give the text to: python -m cases explain -")
            self.scaling()
            if isinstance(self.error, SyntaxError):
                result.said = "Python could not read the source: nothing ran."
                result.asks.clear()
            return
        self.to_where()
        for reading in (self.scaling, self.fused, self.overflow, self.result_cast, self.indices,
                        self.no_kernel, self.backward, self.devices, self.mismatch):
            if reading():
                break
        else:
            result.said = self.no_dtype()
        if self.unsure:
            result.sure = False
        if self.away:
            result.sure = False
            result.asks.append("It was raised in another process: of its tensors only those that "
                               "this one holds too can be told.")
        self.say_autocast()

    def find(self):
        """The Sites and the Failure of the exception in the chain that shows a tensor operation."""
        first = None
        for error in frames.chain(self.error):
            sites = until_handed_on(frames.sites(error))
            failure = (workers.failing(sites, message_of(error)) or compiled.failing(sites)
                       or failures.failing(sites))
            first = first or (sites, None)
            if failure is not None:
                self.message = message_of(error)
                self.away = failure.site not in sites and failure.site.code is None
                return sites, self.closer(sites, failure)
        return first

    def closer(self, sites, failure):
        """The Failure, or a call of torch's below it that was given no tensor: torch.full(…)."""
        site = sites[-1]
        node = frames.working(site) if site is not failure.site else None
        if site.mine and isinstance(node, ast.Call) and values.is_torch(
                values.look_up(node.func, site)):
            return failures.Failure(site, node, [], *failures.module_of(sites))
        return failure

    @property
    def house(self):
        """The Household of the Failure at hand."""
        if self._house is None or self._house.failure is not self.failure:
            self._house = Household(self.failure, self.sites)
        return self._house

    def to_where(self):
        self.result.where = failures.to_json(self.failure)
        for told, (_, tensor, *_) in zip(self.result.where["operands"], self.failure.operands,
                                         strict=True):
            if tensor is None:
                continue
            if tensor.is_quantized:
                told["layout"] = "quantised"
            elif tensor.is_nested:
                told["layout"] = "nested"
            elif tensor.layout is not torch.strided:
                told["layout"] = dtype_name(tensor.layout)

    # --- kinds of failures ----------------------------------------------------------------

    def scaling(self):
        for words, meaning in SCALER.items():
            if words in self.message:
                self.at_users_call()
                self.result.said = meaning
                self.result.asks.append(
                    "Where were the weights made half? Leave them float32 and let autocast cast."
                    if "FP16" in words else
                    "Follow one step of the loop: backward, unscale_, step, update, each once.")
                if "FP16" in words:
                    self.half_weights()
                return True
        return False

    def at_users_call(self):
        """Tell the op by the name of the reader's own call: scaler.unscale_, scaler.step."""
        site = next((s for s in reversed(self.sites) if s.mine), None)
        node = frames.working(site) if site is not None else None
        if isinstance(node, ast.Call):
            self.result.where = {"module": None, "op": failures.operation(node), "operands": [],
                                 "origin": None}

    def half_weights(self):
        """GradScaler met a half parameter: which, and the line that made it half."""
        result, failure = self.result, self.failure
        tensor = self.sites[-1].locals.get("param") if self.sites else None
        if failure is None or not values.is_tensor(tensor):
            return
        odd = failures.Operand("param", tensor, failure.node, tensor.dtype)
        result.odd = {"name": odd.name, "dtype": "float16"}
        made = self.house.made(odd.tensor, torch.float16)
        if made is None:
            return
        site, node = made
        here = road.Step(failure.site, failure.site.line, failure.node, odd.name)
        result.road = [self.station(step.site, step.line, step.name, torch.float16,
                                    step.how)
                       for step in (road.Step(site, node.lineno, node, text(node), "parameter"),
                                    here)]
        change = cure.change(site, [(node, cure.source_of(site, node.func.value))])
        if change:
            result.cure = {**change, "costs": "the weights take twice the memory, and keep small "
                           "updates; autocast still computes in low precision"}
            result.sure = True

    def fused(self):
        failure, result = self.failure, self.result
        if failure.op not in FUSED or len(self.dtypes()) > 1:
            return False
        result.said = (f"Every operand outside is {self.told(self.dtypes())}. The fused encoder "
                       "layer makes the low precision inside, where autocast does not cover it.")
        result.case, result.sure = "encoder_bf16", True
        user = self.users_line()
        if user is not None and hasattr(torch.backends, "mha"):
            site, line = user
            mine = cure_line(site, line)
            if mine:
                name = cure.torch_name(site)
                change = cure.change(site, [mine],
                                     f"{name}.backends.mha.set_fastpath_enabled(False)")
                result.cure = {**change, "costs": "the fused road is off for the whole process; "
                               "where padding was packed away it is computed too"}
        return True

    def overflow(self):
        found = OVERFLOW.search(self.message)
        if not found:
            return False
        dtype = NAMES.get(found[1].lower())
        result, failure = self.result, self.failure
        told = dtype_name(dtype) or found[1]
        result.said = (f"A number is written into a {told} tensor that is larger than any number "
                       "of that dtype.")
        result.case, result.sure = "cpu_half", True
        number = next((part for _, part in reversed(failures.arguments_of(failure.node))
                       if is_number(part, failure.site)), None)
        if number is not None and dtype is not None and failure.site.mine:
            value = values.look_up(number, failure.site)
            low = isinstance(number, ast.UnaryOp) or values.is_a(value, (int, float)) and value < 0
            end = "min" if low else "max"
            name = cure.torch_name(failure.site)
            new = f"{name}.finfo({cure.dtype_text(failure.site, dtype)}).{end}"
            change = cure.change(failure.site, [(number, new)])
            result.cure = change and {**change, "costs": "none: softmax makes zero of it all the "
                                      "same. Two such numbers added do overflow"}
        return True

    def indices(self):
        if not INDICES.search(self.message):
            return False
        failure = self.failure
        ints = (torch.int64, torch.int32, torch.bool, torch.uint8)
        named = "target" if "loss" in failure.op or "cross_entropy" in failure.op else None
        if integral := re.search(r"(\w+) must be integral", self.message):
            named = integral[1]
        wrong = [o for o in failure.operands if o.name == named and o.dtype != torch.int64] or \
                [o for o in failure.operands if o.dtype not in ints] or \
                [o for o in failure.operands if o.dtype == torch.int32]
        if not wrong:
            return False
        if failure.op == "embedding" and (own := [o for o in wrong if o.name == "input"]):
            wrong = own
        self.result.said = (f"`{wrong[0].name}` are places, not numbers: integers, and they are "
                            f"{dtype_name(wrong[0].dtype)}.")
        self.tell(wrong[0], torch.int64, known=True)
        return True

    def no_kernel(self):
        """An op that does not take a dtype: there is no kernel, or it says what it takes."""
        name = self.refused()
        if name is None:
            return False
        failure, result = self.failure, self.result
        dtype = NAMES.get(name.lower())
        odd = next((o for o in failure.operands
                    if o.dtype == dtype or dtype is None and is_low(o.dtype)), None)
        if odd is None:
            result.said = f"{failure.op} takes no {name}."
            result.asks.append("Which tensor was of that dtype? None of the operands in sight is.")
            return True
        dtype, device = odd.dtype, odd.tensor.device.type
        version = torch.__version__.split("+")[0]
        result.said = f"{failure.op} takes no {dtype_name(dtype)} on {device} in torch {version}."
        if "`~`" in self.message and isinstance(failure.node, ast.BinOp):
            self.tell(odd, torch.bool, known=True, cure_it=False)
            change = cure.change(failure.site, [
                (failure.node, f"~{cure.source_of(failure.site, odd.node)}")])
            result.cure = change and {**change, "costs": "none"}
            return True
        if "bitwise" in self.message or failure.op.startswith(("bit", "invert")):
            self.tell(odd, torch.bool, known=True)
            return True
        if "mask" in odd.name and not dtype.is_floating_point:
            result.asks.append("Is 1 in the mask a place to look at? Then bool is what it says.")
            self.tell(odd, torch.bool, known=True)
            result.sure = False
            return True
        if dtype in (torch.float32, torch.float64):
            result.asks.append("Which dtype does it take? See its documentation.")
            self.tell(odd, dtype, known=True, cure_it=False)
            result.sure = False
            return True
        if device == "cpu" and is_low(dtype):
            result.case = "cpu_half"
        self.tell(odd, torch.float32, known=True, cure_it=False)
        if failure.op in calls.SEVERAL:
            trail = road.trace(failure, odd)
            change = cure.along(trail, failure, odd.node, torch.float32, whole=True)
            result.cure = change and {**change, "costs": cure.price(dtype, torch.float32)}
        else:
            result.cure = self.in_float32(dtype)
        result.sure = result.cure is not None
        return True

    def refused(self):
        """Name of the dtype that an op would not take, as the message has it; or None."""
        if found := NO_KERNEL.search(self.message):
            return next(filter(None, found.groups()))
        names = [found[1] for met in MET if (found := met.search(self.message))]
        names = [name for name in names if name.lower() in NAMES]
        if not names or not ALLOWED.search(self.message):
            return None
        # That two dtypes must match is no list of what is allowed.
        alike = re.search(r"match|same", self.message)
        floats = names[0].lower() in ("float", "double", "half", "bfloat16")
        return None if alike and floats else names[0]

    def in_float32(self, dtype):
        """The failing line with its op in float32: the operands cast, and the result cast back."""
        failure = self.failure
        if failure.site.mine:
            site, node = failure.site, failure.node
        else:
            user = self.users_line()
            if user is None:
                return None
            site = user[0]
            node = frames.working(site)
        if not isinstance(node, (ast.Call, ast.BinOp)):
            return None
        module = values.look_up(node.func, site) if isinstance(node, ast.Call) else None
        module = module if values.is_module(module) else None
        if module is not None and not values.is_torch(type(module)):
            return None
        parts = list(cure.all_parts(node)) if isinstance(node, ast.Call) else [node.left,
                                                                             node.right]
        edits = [(part, f"{cure.source_of(site, part)}.float()") for part in parts
                 if self.is_of(part, site, dtype, guess=module is not None)]
        if not edits:
            return None
        costs = "two casts, and twice the memory while it runs; its result is rounded again"
        if module is not None and failures.parameters_of(module):
            edits.append((node.func, f"{cure.source_of(site, node.func)}.float()"))
            costs = "the layer's weights become float32 for good, at twice the memory, and " + costs
        back = f".to({cure.dtype_text(site, dtype)})" if dtype.is_floating_point else ""
        change = cure.change(site, [(node, cure.source_of(site, node, edits) + back)])
        return change and {**change, "costs": costs if back else "a copy in float32"}

    def is_of(self, part, site, dtype, guess):
        """True for a node that stands for a tensor of a dtype; an expression is one by `guess`."""
        value = values.look_up(failures.base_name(part) or part, site)
        if values.is_tensor(value):
            return value.dtype == dtype
        return guess and isinstance(part, (ast.Call, ast.BinOp))

    def result_cast(self):
        """A result that cannot be kept: in an integer tensor given as out, or changed in place."""
        found = re.search(r"can't be cast to the desired output type (\w+)|"
                          r"expected condition to be a boolean tensor", self.message)
        if not found:
            return False
        failure = self.failure
        if found[1] is None:
            odd = failure.operands[0]
            self.result.said = f"The condition `{odd.name}` is {dtype_name(odd.dtype)}, not bool."
            self.tell(odd, torch.bool, known=True)
            return True
        kept = NAMES.get(found[1].lower())
        odd = next((o for o in reversed(failure.operands) if o.dtype == kept), None)
        if odd is None:
            return False
        if isinstance(failure.node, ast.AugAssign):
            odd = next(o for o in failure.operands if o.dtype == kept)
        home = next((getattr(torch, name) for name in dtypes_in(self.message)
                     if name != dtype_name(kept)), torch.float32)
        self.result.said = (f"The result is {dtype_name(home)}, and `{odd.name}`, which is to hold "
                            f"it, is {dtype_name(kept)}.")
        self.tell(odd, home, known=True)
        return True

    def backward(self):
        """An error of the backward pass: the line that failed is in the forward, and is over."""
        last = next((s for s in reversed(self.sites)
                     if not s.filename.startswith("<")), None)
        if last is None or not is_backward(last):
            return False
        user = self.users_line()
        if hook := HOOK.search(self.message):
            self.result.said = "A hook returned another dtype than it was given."
            self.result.asks.append(f"Where is the hook {hook[1] or ''} registered? Cast what it "
                                    "returns back.")
            return True
        if user is None or not ABOUT_DTYPES.search(self.message) or NOT_DTYPES.search(self.message):
            return False
        site, line = user
        call = frames.working(site)
        if not isinstance(call, ast.Call):
            return False
        start = call.func.value if isinstance(call.func, ast.Attribute) and not values.is_torch(
            values.look_up(call.func.value, site)) else (call.args or [None])[0]
        if start is None:
            return False
        found = self.forward_of(start, site, statement_line(site, line))
        self.result.said = "The backward pass failed: an op of the forward met two dtypes."
        if found is None:
            self.result.asks.append("Which line of the forward made it? Run the forward under "
                                    "torch.autograd.set_detect_anomaly(True): it prints that line.")
            return True
        site, node, line, operands, module, path = found
        self.failure = failures.Failure(site, node, operands, module, path, self.failure.root)
        self.to_where()
        at = f"{frames.show_file(site.filename)}:{line}"
        self.result.said += f" It is {self.failure.op}, at {at}."
        return self.mismatch(line=line)

    def forward_of(self, node, site, line):
        """Follow a loss back to the first expression whose floating operands disagree."""
        tracker = road.Tracker(None)
        for _ in range(20):
            if isinstance(node, ast.Name):
                bound = tracker.binding(node.id, site, line)
                if bound is None or bound.kind != "value":
                    return None
                node, line = bound.node, bound.line
                continue
            if not isinstance(node, (ast.Call, ast.BinOp)):
                return None
            operands = list(failures.operands_of(node, site))
            module = values.look_up(node.func, site) if isinstance(node, ast.Call) else None
            floats = {o.dtype for o in operands if failures.is_floating(o.dtype)}
            if len(floats) > 1 and isinstance(node, ast.Call) and not values.is_torch(
                    type(module) if values.is_module(module) else module):
                return None  # a function of the reader's own: its lines are over
            if len(floats) > 1:
                if values.is_module(module):
                    path = failures.path_of(self.sites, module)[0]
                    return site, node, line, operands, module, path
                return site, node, line, operands, None, None
            parts = [part for _, part in failures.arguments_of(node)]
            calls = [p for p in parts if isinstance(p, (ast.Call, ast.BinOp, ast.Name))
                     and not values.is_a(values.look_up(p, site), (int, float))
                     and not values.is_torch(values.look_up(p, site))]
            if not calls:
                return None
            node = calls[0]
        return None

    def devices(self):
        places = {}
        for name, tensor, *_ in self.failure.operands:
            if tensor is None:
                continue
            places.setdefault(str(tensor.device), []).append((name, tensor))
        # A tensor of no dimension on the CPU may meet any device.
        hidden = len(places) > 1 and any(failures.shape_of(tensor)
                                         for _, tensor in places.get("cpu", ()))
        said = "same device" in self.message
        if not (hidden or said):
            return False
        result = self.result
        home = self.home_device(places)
        odd = next((o for o in self.failure.operands if device_of(o) != home), None)
        told = ", ".join(f"{', '.join(n for n, _ in held)} on {place}"
                         for place, held in places.items())
        if said or odd is None or not ABOUT_DTYPES.search(self.message):
            result.said = f"The operands are on several devices: {told}."
            if odd is not None:
                self.device_cure(odd, home)
            return True
        self.unsure = True
        result.asks.append(f"The operands are on several devices too ({told}): a cast alone ends "
                           "in the next error. Which device is meant?")
        return False

    def home_device(self, places):
        root = self.failure.root
        counted = {}
        if root is not None:
            for _, module in values.walk(root):
                for _, tensor in values.own_tensors(module):
                    counted[str(tensor.device)] = counted.get(str(tensor.device), 0) + 1
        counted = {place: number for place, number in counted.items() if place in places}
        if counted:
            return max(counted, key=counted.get)
        return next((place for place in places if place != "cpu"), "cpu")

    def device_cure(self, odd, home):
        if not self.failure.site.mine:
            return
        site, part = self.failure.site, odd.node
        change = cure.change(site, [(part, f"{cure.source_of(site, part)}.to({home!r})")])
        self.result.cure = change and {**change, "costs": "a copy to the other device at each "
                                       "call; make it there once, if it does not change"}
        self.result.sure = self.failure.root is not None

    def mismatch(self, line=None):
        failure, result = self.failure, self.result
        if NOT_DTYPES.search(self.message) or not ABOUT_DTYPES.search(self.message):
            return False
        floats = [o for o in failure.operands
                  if failures.is_floating(o.dtype) or cure.is_quantised(o.dtype)]
        if len({o.dtype for o in floats}) == 1 and (plain := self.no_float()) is not None:
            home = floats[0].dtype
            result.said = f"{failure.op} met {dtype_name(plain.dtype)} in `{plain.name}`."
            self.tell(plain, home, known=True)
            return True
        if len({o.dtype for o in floats}) == 1:
            floats = self.with_unseen(floats)
        dtypes = {o.dtype for o in floats}
        if len(dtypes) < 2:
            return False
        odd, home, known = self.house.odd_of(floats)
        result.census = self.house.census
        if odd is None:
            result.said = (f"{failure.op} met {self.told(dtypes)}.")
            result.asks.append(f"Which dtype is meant here: {self.told(dtypes)}? Cast the other.")
            return True
        result.said = (f"{failure.op} met {dtype_name(odd.dtype)} in `{odd.name}` beside "
                       f"{dtype_name(home)}.")
        result.case = self.matching_case(odd, dtypes)
        self.tell(odd, home, known, line=line)
        return True

    def no_float(self):
        """The operand of integers or bools that the message names beside a float, or None."""
        named = {NAMES.get(word.lower()) for word in re.findall(
            r"\b(Bool|Long|Int|Short|Char|Byte)\b", self.message)}
        return next((o for o in self.failure.operands if o.dtype in named), None)

    def with_unseen(self, floats):
        """Add the operand that no name holds, where the message names a dtype that none has.

        `out[picked] = expert(x)`: the right side is gone, but the message says what it was.
        """
        seen = floats[0].dtype
        if self.refused() is not None:
            return floats
        named = [getattr(torch, name) for name in dtypes_in(self.message)]
        others = [dtype for dtype in named if dtype != seen]
        site, node = self.failure.site, self.failure.node
        if seen not in named or len(others) != 1 or isinstance(node, ast.Pass):
            return floats
        held = {id(operand.node) for operand in self.failure.operands}
        unseen = [part for _, part in failures.arguments_of(node) if id(part) not in held
                  and (isinstance(part, (ast.Call, ast.BinOp, ast.Starred)) or values.look_up(
                      failures.base_name(part) or part, site) is values.MISSING)
                  and not values.is_torch(values.look_up(part, site))]
        if not unseen:
            return floats
        name = text(unseen[0]).replace("self.", "", 1)
        return [*floats, failures.Operand(name, None, unseen[0], others[0])]

    def no_dtype(self):
        dtypes = self.dtypes()
        named = {getattr(torch, name) for name in dtypes_in(self.message)}
        if dtypes and named - dtypes and not ALLOWED.search(self.message):
            return (f"The operands in sight are {self.told(dtypes)}; the message also names "
                    f"{self.told(named - dtypes)}. That tensor has no name here: made inside the "
                    "expression, or it stood in for a weight while the call ran.")
        if ABOUT_DTYPES.search(self.message) and not NOT_DTYPES.search(self.message):
            return "The message may be about dtypes; no operand in sight explains it."
        self.result.autocast = None  # beside the point
        return "Not about dtypes, by the message and by the operands."

    # --- what all kinds share -------------------------------------------------------------

    def dtypes(self):
        return {o.dtype for o in self.failure.operands if failures.is_floating(o.dtype)}

    def told(self, dtypes):
        return " and ".join(sorted(dtype_name(dtype) for dtype in dtypes)) or "no floats"

    def tell(self, odd, home, known, line=None, cure_it=True):
        """Fill in the odd operand, its road, and the cure at its seam."""
        name, tensor, node, dtype = odd
        result, failure = self.result, self.failure
        result.odd = {"name": name, "dtype": dtype_name(dtype)}
        trail = road.trace(failure, odd, line)
        steps = self.weights_road(tensor, trail)
        for step in steps:
            told = self.station(step.site, step.line, step.name, dtype, step.how)
            last = result.road[-1] if result.road else {}
            if (last.get("file"), last.get("line")) == (told["file"], told["line"]):
                last["how"] = last["how"] or told["how"]
            else:
                result.road.append(told)
        if known is None:
            known = trail.how == "numpy" or self.house.mostly(home, dtype)
        result.asks += [sentence[0].upper() + sentence[1:] + "." for sentence in trail.doubts]
        if not known:
            result.asks.append(f"Which dtype is meant at this line: {dtype_name(home)}, as is "
                               f"assumed here, or {dtype_name(dtype)}?")
        if self.is_into(odd) and trail.how in ("cast", "made", "attribute", "buffer") and (
                trail.how == "cast" or any(cure.chosen(step.node) for step in trail.steps[:1]
                                           if isinstance(step.node, ast.Call))):
            known = False  # someone chose the dtype of what is written into
            result.asks.append(f"Is `{name}` meant to stay {dtype_name(dtype)}? Then cast what is "
                               "written into it.")
        result.sure = known and not trail.doubts
        if not cure_it:
            return
        change = None
        if self.is_own_weight(tensor) and tensor.requires_grad and dtype == torch.float32:
            result.sure = False
            result.asks.append("Are these weights trained? In low precision they lose small "
                               "updates. To keep them float32, cast what they are given, and "
                               "their result.")
        if self.is_own_weight(tensor):
            change = self.convert_module(dtype, home)
        if change is None:
            change = cure.along(trail, failure, node, home)
            made = trail.how == "made" and change and "dtype=" in change["code"]
            drawn = "; random numbers are others" if made and "rand" in change["code"] else ""
            change = change and {**change, "costs": cure.price(dtype, home, made) + drawn}
        result.cure = change
        if change is None:
            result.sure = False
            result.asks.append(f"Where does your own code hand it over? Cast it there: "
                               f".to({dtype_name(home)}).")

    def is_into(self, odd):
        """True for the tensor that an op writes into, or for one that autocast made to be written.

        Then either side may be the one to change: no census of a model decides that.
        """
        op, first = self.failure.op, self.failure.operands[0]
        if not odd.dtype.is_floating_point or odd.dtype == torch.float64:
            return False
        if op.rstrip("_") in INTO and odd.tensor is None:
            return True
        return (op.rstrip("_") in INTO or op.endswith("_")) and odd.name == first.name

    def weights_road(self, tensor, trail):
        """The stations of a Trail; for a parameter, first the line that made or converted it."""
        if trail.how != "parameter":
            return trail.steps
        holder = tensor if self.is_own_weight(tensor) else trail.held
        made = self.house.made(holder, trail.dtype) if holder is not None else None
        if made is None:
            return trail.steps
        site, node = made
        return [road.Step(site, node.lineno, node, text(node), "parameter"), *trail.steps]

    def is_own_weight(self, tensor):
        module = self.failure.module
        return module is not None and any(
            held is tensor for _, held in values.own_tensors(module))

    def convert_module(self, dtype, home):
        """Before the reader's line that calls the model: the part left behind, converted."""
        failure = self.failure
        for site in self.sites:
            named = next((name for name, value in site.locals.items()
                          if value is failure.root and name.isidentifier()), None)
            if not site.mine or named is None:
                continue
            if site.name == "forward":  # each pass would convert
                return None
            left = [(path, tensor) for path, module in values.walk(failure.root)
                    for _, tensor in values.own_tensors(module) if tensor.dtype == dtype]
            part = common(path for path, _ in left)
            made = self.house.made(self.is_held(dtype), dtype)
            mine = cure_line(site, outermost_loop(site, made[1].lineno if made else 0))
            change = mine and cure.change(
                site, [mine], f"{python_path(named, part)}.to({cure.dtype_text(site, home)})")
            count = sum(failures.size_of(tensor) for _, tensor in left)
            return change and {**change, "costs": f"{count:,} weights become {dtype_name(home)} "
                               "for good, and are trained in it; an optimizer made before keeps "
                               "its state in the old dtype"}
        return None

    def is_held(self, dtype):
        """The failing module's own tensor of a dtype."""
        return next((tensor for _, tensor in values.own_tensors(self.failure.module)
                     if tensor.dtype == dtype), None)

    def users_line(self):
        """The innermost Site of the reader's own code, and its line; None without one."""
        for site in reversed(self.sites):
            if site.mine and not failures.is_machinery(site):
                return site, site.line
        return None

    def matching_case(self, odd, dtypes):
        op = self.failure.op
        if not any(is_low(dtype) for dtype in dtypes):
            return None
        if op in FUSED:
            return "encoder_bf16"
        if op in WEIGHTED or self.is_own_weight(odd.tensor):
            return "llama_vision"
        if op in ACTIVATIONS:
            return "chatglm_prefix"
        return None

    def station(self, site, line, name, dtype, how):
        return {"file": frames.show_file(site.filename), "line": line,
                "code": line_text(site, line), "name": cut(name, 80),
                "dtype": dtype_name(dtype), "how": how}

    def say_autocast(self):
        failure, result = self.failure, self.result
        if failure is None or result.autocast is None:
            result.autocast = ""
            return
        around = autocast_around(failure.site, failure.site.line)
        device = next((o.tensor.device.type for o in failure.operands if o.tensor is not None),
                      "cpu")
        if around is None:
            result.autocast = ("None is seen around these lines; one that a trainer switches on "
                               "does not show in a traceback.")
            return
        at = f"{frames.show_file(around['site'].filename)}:{around['line']}"
        if around["enabled"] is False:
            result.autocast = f"Switched off here, by the block at {at}."
        elif around["device"] not in (None, device):
            result.autocast = (f"The block at {at} is for {around['device']}; these tensors are on "
                               f"{device}, where it does nothing.")
        else:
            dtype = dtype_name(around["dtype"]) or "a dtype that cannot be read"
            unsure = "" if around["enabled"] else ", if it is switched on"
            result.autocast = f"On for {around['device'] or device} in {dtype}{unsure}: {at}."


def is_backward(site):
    """True for a frame of torch's that runs a backward pass.

    torch/_tensor.py is also where the __torch_function__ of every subclass lives.
    """
    file = site.filename.replace("\\", "/")
    return any(part in file for part in BACKWARD) or (
        file.endswith("torch/_tensor.py") and site.name == "backward")


def until_handed_on(sites):
    """The Sites without those at the end in which a subclass of Tensor handed the op on as it was.

    The op failed where it was called; `__torch_function__` only stands between it and torch.
    """
    last = len(sites)
    while last > 1 and hands_on(sites[last - 1]):
        last -= 1
    return sites[:last]


def hands_on(site):
    """True for a `__torch_function__` that was busy with the very call that it was asked for."""
    if site.name not in ("__torch_function__", "__torch_dispatch__"):
        return False
    source, call = frames.scope(site), frames.working(site)
    names = positional(source)
    if len(names) < 4 or not isinstance(call, ast.Call) or is_rebound(source, names[-2]):
        return False
    given = names[-2]  # (cls, func, types, args, kwargs)
    return any(isinstance(part, ast.Name) and part.id == given for part in (
        getattr(part, "value", part) if isinstance(part, ast.Starred) else part
        for part in call.args))


def device_of(operand):
    return str(operand.tensor.device) if operand.tensor is not None else ""


def is_low(dtype):
    return dtype in (torch.float16, torch.bfloat16)


def is_number(node, site):
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand, site)
    value = values.look_up(node, site)
    if isinstance(node, ast.Call):
        return text(node.func) == "float"
    return type(value) in (int, float) and not isinstance(node, ast.Constant) or isinstance(
        node, ast.Constant) and type(node.value) is float or type(value) is int and abs(value) > 1e4


def line_text(site, line):
    return cut(linecache.getline(site.filename, line).strip())


def cut(text, longest=200):
    """A text for one line; of a longer one its beginning."""
    return text if len(text) <= longest else text[:longest].rstrip() + " …"


def cure_line(site, line):
    """(node, its own text) of the statement at a line: something to put a line before."""
    source = frames.scope(site)
    start = statement_line(site, line)
    for node in own_nodes(source) if source is not None else ():
        if isinstance(node, ast.stmt) and node.lineno == start:
            return whole_line(site, start)
    return None


def outermost_loop(site, after):
    """Line of the outermost loop that a Site stands in and that begins after a line; or its own."""
    source = frames.scope(site)
    loops = [node.lineno for node, _ in branch(source, site.line)
             if isinstance(node, (ast.For, ast.While))] if source is not None else []
    return min([line for line in loops if line > after], default=site.line)


def whole_line(site, line):
    kept = linecache.getline(site.filename, line).rstrip("\n")
    node = ast.Pass(lineno=line, end_lineno=line, col_offset=0,
                    end_col_offset=len(kept.encode()))
    return node, kept


def common(paths):
    """The path of the part that holds all of these."""
    parts = [path.split(".") if path else [] for path in paths]
    found = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        found.append(level[0])
    return ".".join(found)


def python_path(root, path):
    """'1.inner' of model as Python: model[1].inner."""
    found = root
    for part in path.split(".") if path else ():
        found += f"[{part}]" if part.isdigit() else f".{part}"
    return found
