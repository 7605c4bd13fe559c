"""A GPU where there is none: what CUDA's autocast decides, above the CPU's kernels.

A tensor here holds a CPU tensor and says that it is on cuda:0. PyTorch believes it, so all that
lies above the kernels is CUDA's own: the rules of autocast, each `x.is_cuda` in PyTorch's code,
the checks of shapes and dtypes that all devices share. Below, the CPU's kernel does the work.

It shows which dtype reaches which operation. It does not show what is the kernel's own: the
words of an error raised in one, the last bits of a number, time, memory. Where the answer would
hang on that (a kernel that the CPU lacks, or one that mixes dtypes on the CPU) it refuses with
NotEmulated. Inside a kernel that calls operations itself, autocast is off here, as PyTorch has
it for every tensor subclass; nn.TransformerEncoder and nn.MultiheadAttention take theirs only
where cuda's autocast is off anyway. Attention takes its plain form, for which of the fused ones
would do hangs on the GPU's model. There is no backward.

How closely this follows the truth is measured in tests/lab/test_emulate.py: the same tensors
with the CPU's key under them, where the truth is at hand, and recorded outcomes of a GPU where
there are any.
"""

import contextlib
from unittest import mock

import torch
import torch.cuda.amp
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from cases.halftruths.base import BadInput
from cases.halftruths.dtypes import dtype_name
from cases.lab import run as lab
from cases.lab.case import Missing

# On 2.0 attention asks the driver for a GPU whatever the switches say.
OLDEST = (2, 1)
# What a tensor's device is called after .to(device).
PLACES = {"cuda": "cuda:0", "cpu": "cpu"}


class NotEmulated(Missing):
    """What happens on a GPU hangs on something that is not here; the message says on what."""


def obstacle():
    """Return in one line why nothing can be emulated here, or None if it can."""
    if torch.cuda.is_available():
        return "this torch sees a GPU: run on it, with device cuda"
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST:
        return (f"torch {torch.__version__} cannot emulate cuda; "
                f"allowed: {'.'.join(map(str, OLDEST))} and newer")
    return None


def available():
    """True if cuda can be emulated here: no GPU, and a torch that is new enough."""
    return obstacle() is None


class Emulated(torch.Tensor):
    """A tensor that says it is on `device`; `held` is the CPU tensor that it stands for."""

    # Not "some Tensor argument has_torch_function", which keeps nn.TransformerEncoder from its
    # fast path: to Python this is a tensor like any other.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held, device):
        if held.is_nested:  # its rows have no common length; 1 stands for it
            keys = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensor)
            shape, more = (held.size(0), 1, held.size(-1)), {"_extra_dispatch_keys": keys}
        else:
            shape = held.shape
            more = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=held.dtype, layout=held.layout, device=device, **more
        )

    def __init__(self, held, device):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        device = next(leaf.device.type for leaf in tree_flatten((args, kwargs or {}))[0]
                      if isinstance(leaf, Emulated))
        return below(device, function, args, kwargs or {})

    # A graph over a device that is not there ends the process, so there is never one.
    requires_grad = property(lambda self: False, lambda self, value: None)

    def requires_grad_(self, requires_grad=True):
        return self

    def backward(self, *args, **kwargs):
        raise NotEmulated("backward cannot be emulated")

    def set_data(self, new):
        if not isinstance(new, Emulated):
            raise NotEmulated("a tensor on cuda is given the data of one on the CPU")
        torch.Tensor.data.__set__(self, new)
        self.held = new.held

    data = property(lambda self: self.detach(), set_data)

    def cpu(self, *args, **kwargs):
        return self.held

    def tolist(self):
        return self.held.tolist()

    def __format__(self, form):
        return format(self.held, form)

    def __repr__(self):
        return f"{repr(self.held)[:-1]}, device='{self.device}', emulated)"


def through(function):
    """A method that runs `function` on what the tensors hold."""
    return lambda self, *args, **kwargs: below(self.device.type, function, (self, *args), kwargs)


# Python's own door to these asks for a guard of the device before it calls the dispatcher, and
# a torch built for the CPU has none for cuda.
for _name in ("__getitem__", "__setitem__", "__invert__", "contiguous", "copy_", "new_tensor",
              "nonzero"):
    setattr(Emulated, _name, through(getattr(torch.Tensor, _name)))

# They mix dtypes on the CPU; CUDA's kernels have rules of their own.
MIXING = ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit")
# What is known to need no more of a nested tensor than that it is one.
NESTED = ("_transformer_encoder_layer_fwd", "to_padded_tensor", "detach")


def is_device(leaf):
    return isinstance(leaf, torch.device) or (
        isinstance(leaf, str) and leaf.split(":")[0] in ("cpu", "cuda")
    )


def underneath(leaf):
    """What stands on the CPU for an argument; the ends of a slice may be tensors too."""
    if isinstance(leaf, slice):
        return slice(*map(underneath, (leaf.start, leaf.stop, leaf.step)))
    return leaf.held if isinstance(leaf, Emulated) else "cpu" if is_device(leaf) else leaf


def below(device, function, args, kwargs):
    """Call `function` on the tensors underneath, and put the results where they belong.

    Results are on `device` if the call names it, or names none and a tensor there takes part.
    """
    leaves, tree = tree_flatten((args, kwargs))
    named = [torch.device(leaf).type for leaf in leaves if is_device(leaf)]
    emulated = [leaf for leaf in leaves if isinstance(leaf, Emulated)]
    on_device = named[0] == device if named else bool(emulated)
    held, given = [], {}
    for leaf in leaves:
        low = underneath(leaf)
        held.append(torch.device(low) if isinstance(leaf, torch.device) else low)
        if isinstance(leaf, torch.Tensor):
            given[id(low)] = leaf
    name = operation_name(function)
    if any(leaf.held.is_nested for leaf in emulated) and name not in NESTED:
        raise NotEmulated(f"a nested tensor is given to {name or function.__name__}")
    if name and emulated and device == "cuda":
        check(name, leaves)
    lower, options = tree_unflatten(held, tree)
    if name in ("_softmax", "_log_softmax") and lower[-1]:
        # CUDA alone has a kernel that reads half and writes float32. Here two steps do it.
        lower = (lower[0].float(), *lower[1:-1], False)
    try:
        results = function(*lower, **options)
    except (NotImplementedError, RuntimeError) as error:
        if isinstance(error, NotImplementedError) or lacks_kernel(str(error)):
            raise NotEmulated(
                f"the CPU, which computes here, has no kernel for this: "
                f"{str(error).strip().splitlines()[0]}"
            ) from error
        raise

    def up(result):
        if not isinstance(result, torch.Tensor):
            return result
        old = given.get(id(result))
        if old is not None and (not named or isinstance(old, Emulated) == on_device):
            return old  # changed in place, or handed through
        return Emulated(result, PLACES[device]) if on_device else result

    results = tree_map(up, results)
    if any(not leaf.held.is_nested and leaf.held.shape != leaf.shape for leaf in emulated):
        with torch._C._DisableTorchDispatch():  # squeeze_ and its like: the outside changes too
            function(*args, **kwargs)
    return results


def operation_name(function):
    """'linear' of an operation of the dispatcher; None of a function of Python."""
    schema = getattr(function, "_schema", None)
    return schema.name.split("::")[1] if schema is not None else None


def lacks_kernel(message):
    return "not implemented for" in message or "doesn't support tensors of type" in message


def check(name, leaves):
    """Raise NotEmulated where a GPU's kernel may do otherwise than the CPU's."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    floats = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if name in MIXING and len(floats) > 1:
        names = " and ".join(sorted(dtype_name(dtype) for dtype in floats))
        raise NotEmulated(f"{name} is given {names}, which the CPU's kernel takes; a GPU's may not")
    strangers = [t for t in tensors if not isinstance(t, Emulated) and t.dim() > 0]
    if strangers and name not in ("copy_", "_to_copy", "index", "index_put_"):
        raise NotEmulated(f"{name} is given tensors on cuda and on the CPU at once")


class Doorman(TorchDispatchMode):
    """Sends to `below` what PyTorch itself makes on the device, such as a scalar to compare with.

    A dispatch mode: nothing above the dispatcher can see it, unlike a TorchFunctionMode.
    """

    @classmethod
    def _should_skip_dynamo(cls):
        """False: there is no torch.compile in sight, and to import it takes seconds."""
        return False

    def __init__(self, device):
        super().__init__()
        self.emulated = device

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return below(self.emulated, function, args, kwargs or {})


FACTORIES = ("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand",
             "randint", "randn", "randperm", "scalar_tensor", "tensor", "tril_indices",
             "triu_indices", "zeros")


def finds_no_gpu(error):
    """True for what PyTorch says where it goes past all this and looks for a GPU."""
    words = ("support for cuda devices", "'CUDA' backend", "CUDA error", "CUDA driver")
    return any(one in str(error) for one in words)


def no_driver(*args, **kwargs):
    raise NotEmulated("the program asks CUDA itself for something")


@contextlib.contextmanager
def emulated(device="cuda"):
    """While this is entered, `device` can be used as if it were there.

    Modules and tensors go there with .to(…) or .cuda(), factories make tensors there, and
    torch.autocast (every form of it) switches on for it. All is put back at the end.
    device: "cuda"; "cpu" puts the same tensors over the CPU's own key, to test them.
    Raises BadInput where nothing can be emulated.
    """
    problem = obstacle()
    if problem:
        raise BadInput(problem)

    def moved(function):
        return lambda *args, **kwargs: below(device, function, args, kwargs)

    plain_to = torch.Tensor.to

    def to(self, *args, **kwargs):
        if args and isinstance(args[0], torch.Tensor):  # like that one
            args = (args[0].device, args[0].dtype, *args[1:])
        return below(device, plain_to, (self, *args), kwargs)

    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        def patch(target, name, new):
            stack.enter_context(mock.patch.object(target, name, new))

        for name in FACTORIES:
            patch(torch, name, moved(getattr(torch, name)))
        patch(torch.Tensor, "to", to)
        patch(torch.Tensor, "type_as", lambda self, other: to(self, other.device, other.dtype))
        if device == "cuda":
            patch(torch.Tensor, "cuda", lambda self, *args, **kwargs: to(self, "cuda"))
            patch(torch.cuda, "_lazy_init", no_driver)
            # The two questions by which torch.autocast("cuda") would switch itself off.
            patch(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
            patch(torch.cuda, "is_bf16_supported", lambda *args, **kwargs: True)
            # To choose among the fused kernels of attention PyTorch asks the driver for the GPU's
            # model. With all of them off it takes the plain form, as a torch without CUDA does.
            for kind in ("flash", "mem_efficient", "cudnn"):
                switch = getattr(torch.backends.cuda, f"enable_{kind}_sdp", None)
                if switch:
                    stack.callback(switch, getattr(torch.backends.cuda, f"{kind}_sdp_enabled")())
                    switch(False)
        # A parameter must become another object when its module moves, not the same with new data.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrite)
        lab.EMULATED[device] = __file__
        stack.callback(lab.EMULATED.pop, device)
        stack.enter_context(Doorman(device))
        yield


def run(case, setting=None, fixes=()):
    """Run `case` once on an emulated cuda and return its Outcome, labelled emulated.

    Arguments as for cases.lab.run.run. The verdict is against the same program without fixes,
    emulated too; the relative error against float32 on the CPU. An error's words are those of
    the CPU's kernel, if a kernel raised it.
    Raises BadInput where nothing can be emulated, or for phase train; NotEmulated (a BadInput)
    where the outcome would hang on what the CPU's kernels do.
    """
    setting = case.setting(setting)
    if setting.get("phase") == "train":
        raise BadInput("phase 'train' needs backward, which cannot be emulated; "
                       f"allowed: {', '.join(phases(case))}")
    with emulated():
        plain, outcome = (lab.run(case, setting, some, "cuda", training=False)
                          for some in ((), fixes))
    for one in (plain, outcome):
        if one.error and finds_no_gpu(one.error["message"]):
            raise NotEmulated(one.error["message"].splitlines()[0])
    return outcome


def phases(case):
    return [value for factor in case.factors if factor.name == "phase"
            for value in factor.values if value != "train"]


def each(names, arguments):
    """Return {name: call}; the call hands the function of that name what `arguments` picks."""
    found = {}
    for name in names.split():
        function = getattr(torch, name, None) or getattr(F, name)
        found[name] = lambda x, y, function=function: function(*arguments(x, y))
    return found


# The calls by which policies are measured. x and y are square, positive, below 1, invertible.
CALLS = {
    **each("acos asin cosh cos erfinv exp expm1 gelu inverse log log10 log1p log2 norm prod "
           "reciprocal relu rsqrt sigmoid sin sinh softplus sqrt sum tan tanh trace",
           lambda x, y: (x,)),
    **each("cumprod cumsum log_softmax logsumexp mean softmax", lambda x, y: (x, -1)),
    **each("add atan2 binary_cross_entropy_with_logits cdist cosine_similarity dist huber_loss "
           "kl_div l1_loss linear matmul mm mse_loss mul pow smooth_l1_loss", lambda x, y: (x, y)),
    "addmm": lambda x, y: torch.addmm(x, x, y),
    "avg_pool2d": lambda x, y: F.avg_pool2d(x[None], 2),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True),
    "bilinear": lambda x, y: F.bilinear(x, x, y[None]),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "cat": lambda x, y: torch.cat([x, y]),
    "conv1d": lambda x, y: F.conv1d(x[None], y[None]),
    "conv2d": lambda x, y: F.conv2d(x[None, None], y[None, None]),
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "fft_fft": lambda x, y: torch.fft.fft(x).real,
    "group_norm": lambda x, y: F.group_norm(x, 2),
    "layer_norm": lambda x, y: F.layer_norm(x, x.shape[-1:]),
    "linalg_inv": lambda x, y: torch.linalg.inv(x),
    "mv": lambda x, y: torch.mv(x, y[0]),
    "prelu": lambda x, y: F.prelu(x, y[0]),
    "quantile": lambda x, y: torch.quantile(x, 0.5),
    "scaled_dot_product_attention":
        lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    "stack": lambda x, y: torch.stack([x, y]),
}
LOW, AS_IT_COMES = "in the low dtype", "as it comes"


def policy(call, device, low):
    """Return in words what autocast on `device` does to `call`: measured, from result dtypes.

    The call is made on float32, on `low`, and on both at once. Where it raises, autocast left
    the dtypes as they came.
    """
    square = 0.5 * torch.eye(4) + 0.2
    wide, results = torch.float32, []
    for dtypes in ((wide, wide), (low, low), (wide, low)):
        x, y = (square.to(device, dtype) for dtype in dtypes)
        try:
            with torch.no_grad(), torch.autocast(device, low):
                results.append(call(x, y).dtype)
        except NotEmulated:
            results.append("left to the kernel")
        except RuntimeError as error:
            if finds_no_gpu(error):
                return "not shown here"
            results.append(None)
    if results[0] == low:
        return LOW
    if results[1] == wide:
        return "in float32"
    return AS_IT_COMES if results[2] else f"{AS_IT_COMES}; a mix raises"


def policies(low=torch.bfloat16):
    """Return {operation: (policy on the CPU, policy on cuda)} of every call in CALLS.

    The CPU's is measured live, cuda's on a GPU if there is one and else emulated.
    Raises BadInput where cuda can be had in neither way.
    """
    with lab.steady():
        here = {name: policy(call, "cpu", low) for name, call in CALLS.items()}
        with contextlib.nullcontext() if torch.cuda.is_available() else emulated():
            there = {name: policy(call, "cuda", low) for name, call in CALLS.items()}
    return {name: (here[name], there[name]) for name in here}


def registered():
    """Return ({operation}, {operation}): what CPU's and CUDA's autocast have a rule for.

    Read from the dispatcher; overloads of one operation count once.
    """
    return tuple(
        {name.split("::")[-1].split(".")[0]
         for name in torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{key}")}
        for key in ("CPU", "CUDA")
    )
