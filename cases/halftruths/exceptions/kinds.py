"""The kinds of failure. Each is a function of a Scene that returns a Finding, or None if it is
another kind; KINDS is the order in which they are asked."""

import ast
import re
from enum import Enum
from typing import NamedTuple

import torch

from ..base import PROGRAM
from ..dtypes import dtype_name
from ..messages.words import dtypes_in
from . import calls, cure, failures, frames, remedies, road, values, wording
from .bindings import statement_line, text
from .cure import Cure
from .failures import Failure, Operand
from .scene import Scene, is_backward

FUSED = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
ACTIVATIONS = ("matmul", "bmm", "baddbmm", "scaled_dot_product_attention", "einsum", "cat",
               "sdpa_attention_forward", "multi_head_attention_forward")
WEIGHTED = ("linear", "conv1d", "conv2d", "conv3d", "addmm", "embedding")
HOPS = 20  # from a loss back to the expression whose operands disagree


class Doubt(Enum):
    """Why an answer is not sure. An answer with any of these is told as a likely one."""

    NO_FRAMES = "the frames show no tensor operation"
    ANOTHER_PROCESS = "it was raised in another process"
    MEANING = "the kind alone does not say what is meant"
    NOT_IN_SIGHT = "the tensor that it is about is not in sight"
    DEVICES = "the operands are on several devices"
    HOME = "either dtype may be the one that is meant"
    COLUMNS = "a line that failed has several calls, and this Python tells no columns"
    WRITTEN_INTO = "someone chose the dtype of what is written into"
    ROAD = "where the dtype came in was not read without a choice"
    TRAINED = "the weights are trained"
    KERNEL = "the cure's dtype may have no kernel for such a tensor"
    NO_CURE = "no line of the reader's own can be changed"


class Question(NamedTuple):
    """The next question to the reader. doubt: what it would settle; None beside a sure answer."""

    text: str
    doubt: Doubt | None


class Finding(NamedTuple):
    """What one kind of failure says.

    known: True if what is said is certain, and the dtype `home` where there is an odd operand;
    None if it is certain in case NumPy made the odd operand. why: why that operand is the odd one.
    steps: the road of the odd operand; None to trace it. cure: of the line itself; a seam is looked
    for on the road if `at_seam`, and if `whole` an explicit cast is changed at once. scene: another
    one than the kind was asked about. line: of the failing expression, if its frame has moved on.
    about_dtypes: False where autocast is beside the point.
    """

    said: str
    known: bool | None = False
    questions: tuple = ()
    case: str | None = None
    odd: Operand | None = None
    home: torch.dtype | None = None
    why: str = ""
    cure: Cure | None = None
    at_seam: bool = False
    whole: bool = False
    steps: tuple | None = None
    where: dict | None = None
    scene: Scene | None = None
    line: int | None = None
    about_dtypes: bool = True


def finding_of(scene):
    """The Finding of the first kind that the Scene is of. There is always one."""
    return next(filter(None, (kind(scene) for kind in KINDS)))


def cast_on_the_road(said, odd, home, known=True, **more):
    """The Finding of an odd operand that is cured at its seam."""
    return Finding(said, known, odd=odd, home=home, at_seam=True, **more)


# --- by the message alone -------------------------------------------------------------------------


def not_parsed(scene):
    if scene.failure is None and not scene.parsed:
        return Finding("Python could not read the source: nothing ran.")
    return None


def loss_scaling(scene):
    """GradScaler's own errors: of its protocol, or of half weights."""
    meaning = wording.scaler(scene.message)
    if meaning is None:
        return None
    missing = no_frames(scene).questions if scene.failure is None else ()
    if "FP16" not in scene.message:
        return Finding(meaning, where=users_call(scene), questions=(*missing, Question(
            "Follow one step of the loop: backward, unscale_, step, update, each once.",
            Doubt.MEANING)))
    asks = "Where were the weights made half? Leave them float32 and let autocast cast."
    return half_weights(scene, Finding(meaning, where=users_call(scene), questions=missing), asks)


def users_call(scene):
    """The op by the name of the reader's own call: scaler.unscale_, scaler.step."""
    site = next((s for s in reversed(scene.sites) if s.mine), None)
    node = frames.working(site) if site is not None else None
    if not isinstance(node, ast.Call):
        return None
    return {"module": None, "op": failures.operation(node), "operands": [], "origin": None}


def half_weights(scene, finding, asks):
    """GradScaler met a half parameter: which, and the line that made it half."""
    failure = scene.failure
    tensor = scene.sites[-1].locals.get("param") if scene.sites else None
    unsure = (*finding.questions, Question(asks, Doubt.MEANING))
    if failure is None or not values.is_tensor(tensor):
        return finding._replace(questions=unsure)
    odd = Operand("param", tensor, failure.node, torch.float16)
    finding = finding._replace(odd=odd, home=torch.float32, steps=())
    converted = scene.house.made(tensor, torch.float16)
    if converted is None:
        return finding._replace(questions=unsure)
    site, node = converted
    steps = (road.Step(site, node.lineno, node, text(node), "parameter"),
             road.Step(failure.site, failure.site.line, failure.node, odd.name))
    found = remedies.weights_left_float32(site, node)
    question = Question(asks, None if found else Doubt.NO_CURE)
    return finding._replace(steps=steps, cure=found, known=True,
                            questions=(*finding.questions, question))


def no_frames(scene):
    if scene.failure is not None:
        return None
    return Finding("No frame of this traceback holds a tensor operation.", questions=(Question(
        "Is this the exception itself, with its traceback? Of a log alone, give the text to: "
        f"{PROGRAM} explain -", Doubt.NO_FRAMES),))


# --- by the message and the operands --------------------------------------------------------------


def fused_encoder(scene):
    """The fused encoder layer, whose operands outside are all of one dtype."""
    if scene.failure.op not in FUSED or len(scene.floats) > 1:
        return None
    return Finding(
        f"Every operand outside is {told(scene.floats)}. The fused encoder layer makes the low "
        "precision inside, where autocast does not cover it.",
        known=True, case="encoder_bf16", cure=remedies.without_fast_path(scene))


def overflow(scene):
    """A number is written into a tensor whose dtype has none so large."""
    found = wording.OVERFLOW.search(scene.message)
    if not found:
        return None
    dtype = wording.DTYPES.get(found[1].lower())
    return Finding(
        f"A number is written into a {dtype_name(dtype) or found[1]} tensor that is larger than "
        "any number of that dtype.",
        known=True, case="cpu_half", cure=remedies.number_in_range(scene.failure, dtype))


def result_not_kept(scene):
    """A result that cannot be kept: in an integer tensor given as out, or changed in place."""
    found = wording.RESULT.search(scene.message)
    if not found or not scene.failure.operands:
        return None
    operands = scene.failure.operands
    if found[1] is None:
        odd = operands[0]
        return cast_on_the_road(f"The condition `{odd.name}` is {dtype_name(odd.dtype)}, not bool.",
                                odd, torch.bool)
    kept = wording.DTYPES.get(found[1].lower())
    # An out= stands last; what is changed in place stands first.
    in_place = isinstance(scene.failure.node, ast.AugAssign)
    odd = next((o for o in (operands if in_place else reversed(operands)) if o.dtype == kept), None)
    if odd is None:
        return None
    home = next((getattr(torch, name) for name in dtypes_in(scene.message)
                 if name != dtype_name(kept)), torch.float32)
    return cast_on_the_road(f"The result is {dtype_name(home)}, and `{odd.name}`, which is to hold "
                            f"it, is {dtype_name(kept)}.", odd, home)


def indices(scene):
    """Places are told by something else than integers, or by integers of another size."""
    if not wording.INDICES.search(scene.message):
        return None
    failure = scene.failure
    named = "target" if "loss" in failure.op or "cross_entropy" in failure.op else None
    if integral := wording.INTEGRAL.search(scene.message):
        named = integral[1]
    ints = (torch.int64, torch.int32, torch.bool, torch.uint8)
    wrong = [o for o in failure.operands if o.name == named and o.dtype != torch.int64] or \
            [o for o in failure.operands if o.dtype not in ints] or \
            [o for o in failure.operands if o.dtype == torch.int32]
    if failure.op == "embedding":
        wrong = [o for o in wrong if o.name == "input"] or wrong
    if not wrong:
        return None
    return cast_on_the_road(f"`{wrong[0].name}` are places, not numbers: integers, and they are "
                            f"{dtype_name(wrong[0].dtype)}.", wrong[0], torch.int64)


def refused_dtype(scene):
    """An op that does not take a dtype: there is no kernel, or it says what it takes."""
    name = wording.refused(scene.message)
    if name is None:
        return None
    failure, dtype = scene.failure, wording.DTYPES.get(name.lower())
    odd = next((o for o in failure.operands
                if o.dtype == dtype or dtype is None and is_low(o.dtype)), None)
    if odd is None or odd.tensor is None:
        return Finding(f"{failure.op} takes no {name}.", questions=(Question(
            "Which tensor was of that dtype? None of the operands in sight is.",
            Doubt.NOT_IN_SIGHT),))
    version = torch.__version__.split("+")[0]
    said = (f"{failure.op} takes no {dtype_name(odd.dtype)} on {odd.tensor.device.type} in torch "
            f"{version}.")
    return next(filter(None, (what(scene, odd, said) for what in REFUSED)))


def minus_of_bools(scene, odd, said):
    node = scene.failure.node
    if "`~`" not in scene.message or not isinstance(node, ast.BinOp):
        return None
    site = scene.failure.site
    found = cure.change(site, [(node, f"~{cure.source_of(site, odd.node)}")])
    return Finding(said, True, odd=odd, home=torch.bool,
                   cure=found and found.at_the_price_of("none"))


def bits_of_numbers(scene, odd, said):
    if "bitwise" in scene.message or scene.failure.op.startswith(("bit", "invert")):
        return cast_on_the_road(said, odd, torch.bool)
    return None


def mask_of_integers(scene, odd, said):
    if "mask" not in odd.name or odd.dtype.is_floating_point:
        return None
    return cast_on_the_road(said, odd, torch.bool, questions=(Question(
        "Is 1 in the mask a place to look at? Then bool is what it says.", Doubt.MEANING),))


def full_precision(scene, odd, said):
    """float32 or float64 is refused: what the op takes instead is not for us to guess."""
    if odd.dtype not in (torch.float32, torch.float64):
        return None
    return Finding(said, True, odd=odd, home=odd.dtype, questions=(Question(
        "Which dtype does it take? See its documentation.", Doubt.MEANING),))


def no_kernel(scene, odd, said):
    """The op is run in float32; where it has several results, its operand is made float32."""
    case = "cpu_half" if odd.tensor.device.type == "cpu" and is_low(odd.dtype) else None
    if scene.failure.op in calls.SEVERAL:
        return cast_on_the_road(said, odd, torch.float32, case=case, whole=True)
    found = remedies.in_float32(scene, odd.dtype)
    asks = () if found else (Question(
        "Which line of your own code leads to this op? Run the op in float32 there.",
        Doubt.NO_CURE),)
    return Finding(said, True, asks, case, odd, torch.float32, cure=found)


REFUSED = (minus_of_bools, bits_of_numbers, mask_of_integers, full_precision, no_kernel)


def backward_pass(scene):
    """An error of the backward pass: the line that failed is in the forward, and is over."""
    last = next((s for s in reversed(scene.sites) if not s.filename.startswith("<")), None)
    if last is None or not is_backward(last):
        return None
    if hook := wording.HOOK.search(scene.message):
        return Finding("A hook returned another dtype than it was given.", questions=(Question(
            f"Where is the hook {hook[1] or ''} registered? Cast what it returns back.",
            Doubt.NOT_IN_SIGHT),))
    site = scene.users_site
    call = frames.working(site) if site is not None else None
    if not wording.about_dtypes(scene.message) or not isinstance(call, ast.Call):
        return None
    start = call.func.value if isinstance(call.func, ast.Attribute) and not values.is_torch(
        values.look_up(call.func.value, site)) else (call.args or [None])[0]
    if start is None:
        return None
    failure, line = forward_of(start, site, statement_line(site, site.line), scene)
    if failure is None:
        return Finding(
            "The backward pass failed: an op of the forward met two dtypes.", questions=(Question(
                "Which line of the forward made it? Run the forward under "
                "torch.autograd.set_detect_anomaly(True): it prints that line.",
                Doubt.NOT_IN_SIGHT),))
    there = scene.at(failure)
    found = two_dtypes(there)
    return found and found._replace(scene=there, line=line)


def forward_of(node, site, line, scene):
    """Follow a loss back: the Failure of the first expression whose floating operands disagree,
    and its line; (None, None) where it is not in sight."""
    tracker, nowhere = road.Tracker(None), (None, None)
    for _ in range(HOPS):
        if isinstance(node, ast.Name):
            bound = tracker.binding(node.id, site, line)
            if bound is None or bound.kind != "value":
                return nowhere
            node, line = bound.node, bound.line
            continue
        if not isinstance(node, (ast.Call, ast.BinOp)):
            return nowhere
        operands = list(failures.operands_of(node, site))
        called = values.look_up(node.func, site) if isinstance(node, ast.Call) else None
        module = called if values.is_module(called) else None
        if len({o.dtype for o in operands if failures.is_floating(o.dtype)}) > 1:
            own = isinstance(node, ast.Call) and not values.is_torch(
                type(module) if module is not None else called)
            if own:  # a function of the reader's own: its lines are over
                return nowhere
            path = failures.path_of(scene.sites, module)[0] if module is not None else None
            return Failure(site, node, operands, module, path, scene.failure.root), line
        parts = [part for _, part in failures.arguments_of(node) if leads_on(part, site)]
        if not parts:
            return nowhere
        node = parts[0]
    return nowhere


def leads_on(part, site):
    """True for a part of an expression that a tensor may have come from."""
    value = values.look_up(part, site)
    return isinstance(part, (ast.Call, ast.BinOp, ast.Name)) and not values.is_torch(value) \
        and not values.is_a(value, (int, float))


# --- by the operands ------------------------------------------------------------------------------


def two_devices(scene):
    """The operands are on several devices, and the message is of that or of nothing we know."""
    places, hidden = places_of(scene), several_devices(scene)
    said = "same device" in scene.message
    if not hidden and not said:
        return None
    home = home_device(scene, places)
    odd = next((o for o in scene.failure.operands if device_of(o) != home), None)
    if not said and odd is not None and wording.ABOUT_DTYPES.search(scene.message):
        return None
    found = remedies.on_device(scene.failure, odd, home) if odd is not None else None
    known = odd is not None and scene.failure.site.mine and scene.failure.root is not None
    return Finding(f"The operands are on several devices: {places_told(places)}.", known,
                   cure=found)


def places_of(scene):
    """{device: [Operand, ...]} of the operands that are in sight."""
    places = {}
    for operand in scene.failure.operands:
        if operand.tensor is not None:
            places.setdefault(str(operand.tensor.device), []).append(operand)
    return places


def several_devices(scene):
    """The doubt where operands are on several devices, as a tuple of at most one Question."""
    places = places_of(scene)
    # A tensor of no dimension on the CPU may meet any device.
    if len(places) < 2 or not any(failures.shape_of(o.tensor) for o in places.get("cpu", ())):
        return ()
    return (Question(f"The operands are on several devices too ({places_told(places)}): a cast "
                     "alone ends in the next error. Which device is meant?", Doubt.DEVICES),)


def places_told(places):
    return ", ".join(f"{', '.join(o.name for o in held)} on {place}"
                     for place, held in places.items())


def home_device(scene, places):
    """The device of most of the model's tensors; without a model, one that is not the CPU."""
    counted = {}
    for _, module in values.walk(scene.failure.root) if scene.failure.root is not None else ():
        for _, tensor in values.own_tensors(module):
            counted[str(tensor.device)] = counted.get(str(tensor.device), 0) + 1
    counted = {place: number for place, number in counted.items() if place in places}
    if counted:
        return max(counted, key=counted.get)
    return next((place for place in places if place != "cpu"), "cpu")


def device_of(operand):
    return str(operand.tensor.device) if operand.tensor is not None else ""


def two_dtypes(scene):
    """The operands are of two dtypes, and one of them is odd."""
    failure = scene.failure
    if not wording.about_dtypes(scene.message):
        return None
    floats = [o for o in failure.operands
              if failures.is_floating(o.dtype) or cure.is_quantised(o.dtype)]
    devices = several_devices(scene)
    if len({o.dtype for o in floats}) == 1 and (whole := whole_numbers(scene)) is not None:
        return cast_on_the_road(f"{failure.op} met {dtype_name(whole.dtype)} in `{whole.name}`.",
                                whole, floats[0].dtype, questions=devices)
    if len({o.dtype for o in floats}) == 1:
        floats = with_unseen(scene, floats)
    dtypes = {o.dtype for o in floats}
    if len(dtypes) < 2:
        return None
    odd, home, known, why = scene.odd_of(floats)
    if odd is None:
        return Finding(f"{failure.op} met {told(dtypes)}.", why=why, questions=(*devices, Question(
            f"Which dtype is meant here: {told(dtypes)}? Cast the other.", Doubt.HOME)))
    return cast_on_the_road(
        f"{failure.op} met {dtype_name(odd.dtype)} in `{odd.name}` beside {dtype_name(home)}.",
        odd, home, known, why=why, questions=devices, case=matching_case(scene, odd, dtypes))


def whole_numbers(scene):
    """The operand of integers or bools that the message names beside a float, or None."""
    named = {wording.DTYPES.get(word.lower()) for word in re.findall(
        r"\b(Bool|Long|Int|Short|Char|Byte)\b", scene.message)}
    return next((o for o in scene.failure.operands if o.dtype in named), None)


def with_unseen(scene, floats):
    """Add the operand that no name holds, where the message names a dtype that none has.

    `out[picked] = expert(x)`: the right side is gone, but the message says what it was.
    """
    seen = floats[0].dtype
    named = [getattr(torch, name) for name in dtypes_in(scene.message)]
    others = [dtype for dtype in named if dtype != seen]
    site, node = scene.failure.site, scene.failure.node
    if wording.refused(scene.message) is not None or seen not in named or len(others) != 1 \
            or isinstance(node, ast.Pass):
        return floats
    held = {id(operand.node) for operand in scene.failure.operands}
    unseen = [part for _, part in failures.arguments_of(node)
              if id(part) not in held and is_unseen(part, site)]
    if not unseen:
        return floats
    name = text(unseen[0]).replace("self.", "", 1)
    return [*floats, Operand(name, None, unseen[0], others[0])]


def is_unseen(part, site):
    """True for an expression, or a name that holds nothing any more, that is none of torch's."""
    made = isinstance(part, (ast.Call, ast.BinOp, ast.Starred))
    gone = values.look_up(failures.base_name(part) or part, site) is values.MISSING
    return (made or gone) and not values.is_torch(values.look_up(part, site))


def matching_case(scene, odd, dtypes):
    """The case of this project that is of the same kind, or None."""
    op = scene.failure.op
    if not any(is_low(dtype) for dtype in dtypes):
        return None
    if op in FUSED:
        return "encoder_bf16"
    if op in WEIGHTED or scene.is_own_weight(odd.tensor):
        return "llama_vision"
    return "chatglm_prefix" if op in ACTIVATIONS else None


def unexplained(scene):
    """None of these kinds: about dtypes perhaps, or not at all."""
    seen, asks = scene.floats, several_devices_beside(scene)
    named = {getattr(torch, name) for name in dtypes_in(scene.message)}
    if seen and named - seen and not wording.ALLOWED.search(scene.message):
        return Finding(
            f"The operands in sight are {told(seen)}; the message also names "
            f"{told(named - seen)}. That tensor has no name here: made inside the expression, or "
            "it stood in for a weight while the call ran.", questions=asks)
    if wording.about_dtypes(scene.message):
        return Finding("The message may be about dtypes; no operand in sight explains it.",
                       questions=asks)
    return Finding("Not about dtypes, by the message and by the operands.", questions=asks,
                   about_dtypes=False)


def several_devices_beside(scene):
    """The same doubt, where the message names a dtype at all."""
    return several_devices(scene) if wording.ABOUT_DTYPES.search(scene.message) else ()


KINDS = (not_parsed, loss_scaling, no_frames, fused_encoder, overflow, result_not_kept, indices,
         refused_dtype, backward_pass, two_devices, two_dtypes, unexplained)


def told(dtypes):
    return " and ".join(sorted(dtype_name(dtype) for dtype in dtypes)) or "no floats"


def is_low(dtype):
    return dtype in (torch.float16, torch.bfloat16)
