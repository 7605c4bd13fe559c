"""What surrounds the failure, each shown by a small real run. CPU; on the torch at hand."""

import copy

import torch

from cases.chatglm_prefix.model import ChatGLM, set_precision, train_forward, validate
from cases.halftruths.dtypes import dtype_name

TOKENS = torch.arange(20).view(4, 5)


def raised(call):
    """Return "Type: message" of what `call()` raises, or None if it raises nothing."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def words_by_size(dtype=torch.float16, sizes=((5, 9, 8), (7, 7, 8), (5, 10, 8), (12, 20, 16))):
    """Ask baddbmm for the same mistake, `dtype` times float32, in several sizes.

    sizes: (queries, keys, head size) each. Returns [(multiplications a head, message)].
    """
    found = []
    for queries, keys, size in sizes:
        q, k = torch.ones(2, queries, size, dtype=dtype), torch.ones(2, keys, size)
        message = raised(lambda q=q, k=k: torch.baddbmm(q.new_zeros(1, 1, 1), q, k.transpose(1, 2)))
        found.append((queries * keys * size, message))
    return found


def glm(attention, dtype=torch.float16):
    """transformers' own GlmForCausalLM from a small config, in `dtype`."""
    from transformers import GlmConfig, GlmForCausalLM

    torch.manual_seed(0)
    config = GlmConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, head_dim=8, max_position_embeddings=64,
        pad_token_id=0, eos_token_id=1, attn_implementation=attention,
    )
    return GlmForCausalLM(config).to(dtype).eval()


def glm_forward(part, attention, dtype=torch.float16):
    """Run transformers' GLM forward, all in `dtype` but one part, which is float32.

    part: none, prefix, lm_head or norm. attention: eager or sdpa. May raise what it raises.
    """
    from transformers import DynamicCache

    model, past = glm(attention, dtype), DynamicCache()
    for layer in range(2):
        keys = torch.randn(4, 4, 4, 8, dtype=torch.float32 if part == "prefix" else dtype)
        past.update(keys, keys.clone(), layer)
    if part == "lm_head":
        model.lm_head.float()
    if part == "norm":
        model.model.norm.float()
    with torch.no_grad():
        return model(TOKENS, cache=past).logits


def glm_messages(dtype=torch.float16):
    """Leave one part of transformers' GLM in float32, the rest in `dtype`, and run it forward.

    Returns {(part, attention): "Type: message", or None where it ran}.
    """
    return {
        (part, attention): raised(lambda p=part, a=attention: glm_forward(p, a, dtype))
        for attention in ("eager", "sdpa") for part in ("none", "prefix", "lm_head", "norm")
    }


def backward(model, scale=lambda loss: loss):
    """Forward and backward of a small loss; returns the parameters that are trained."""
    logits = train_forward(model, TOKENS).flatten(0, 1).float()
    scale(torch.nn.functional.cross_entropy(logits, TOKENS.flatten() % 2)).backward()
    return [p for p in model.parameters() if p.requires_grad]


def prefix_model(dtype=torch.float16):
    """The case's model: base in `dtype`, prefix in float32 and trained."""
    torch.manual_seed(0)
    return set_precision(ChatGLM(), dtype, float32_part="prefix", trained="prefix")


def cast_at_the_seam(model):
    """Let the prefix encoder's output take the base's dtype. Returns the model."""
    encode, base = model.prefix.forward, model.layers[0].query_key_value
    model.prefix.forward = lambda: encode().to(base.weight.dtype)
    return model


def unscale():
    """Let a GradScaler unscale the gradients of a half prefix, and of a float32 one.

    Returns {dtype of the prefix: "Type: message", or None where it was done}.
    """
    found = {}
    for dtype in (torch.float16, torch.float32):
        model, scaler = cast_at_the_seam(prefix_model()), torch.amp.GradScaler("cpu")
        model.prefix.to(dtype)
        parameters = backward(model, scaler.scale)
        optimizer = torch.optim.AdamW(parameters)
        found[dtype_name(dtype)] = raised(lambda s=scaler, o=optimizer: s.unscale_(o))
    return found


def adam_on_half(eps=1e-8, steps=3):
    """Train the prefix, its weights in three dtypes, with AdamW (its default eps is 1e-8).

    Returns {dtype: (share of second moments that are zero though the gradient is not, after
    one step; share of weights that are finite after `steps` steps)}. Squares of small gradients,
    and 1e-8 itself, are zero in float16; Adam divides by the root of the one plus the other.
    """
    found = {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        model = cast_at_the_seam(prefix_model(torch.float32))
        weight = model.prefix.to(dtype).embedding.weight
        optimizer = torch.optim.AdamW([weight], lr=2e-2, eps=eps)
        for step in range(steps):
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
            if step == 0:
                squares = optimizer.state[weight]["exp_avg_sq"][weight.grad != 0]
                vanished = float((squares == 0).double().mean())
        found[dtype_name(dtype)] = (vanished, float(torch.isfinite(weight).double().mean()))
    return found


def lost_updates(steps=100, rate=1e-5):
    """Add the same small update `steps` times to the prefix's weights, held in three dtypes.

    Returns {dtype: (share of weights that never moved, mean distance over the true distance)}.
    """
    start, found = prefix_model().prefix.embedding.weight.detach(), {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        weight = torch.nn.Parameter(start.to(dtype, copy=True))
        weight.grad = torch.ones_like(weight)
        optimizer = torch.optim.SGD([weight], lr=rate)
        for _ in range(steps):
            optimizer.step()
        moved = start.to(dtype).double() - weight.detach().double()
        still, way = (moved == 0).double().mean(), moved.mean() / (steps * rate)
        found[dtype_name(dtype)] = (float(still), float(way))
    return found


def missed_buffers():
    """Convert a float32 model by a loop over named_parameters, and another by model.half().

    Returns {how: (dtypes of parameters, dtypes of buffers, "Type: message" or None)}.
    """
    torch.manual_seed(0)
    looped, found = ChatGLM(), {}
    whole = copy.deepcopy(looped).half()
    for _, parameter in looped.named_parameters():
        parameter.data = parameter.data.half()
    for how, model in (("loop over named_parameters", looped), ("model.half()", whole)):
        kinds = [sorted({dtype_name(t.dtype) for t in tensors})
                 for tensors in (model.parameters(), model.buffers())]
        found[how] = (*kinds, raised(lambda m=model: validate(m, TOKENS)))
    return found


def bits_lost():
    """Send weights through model.float() and model.half(), and look at them in float64.

    Returns {dtype they had: (share of weights changed, largest relative change)}, for the half
    base and for the float32 prefix, and under "optimizer" the dtypes of a weight and of its
    AdamW state afterwards.
    """
    model = cast_at_the_seam(prefix_model())
    optimizer = torch.optim.AdamW(backward(model))
    optimizer.step()
    before = {name: (p.dtype, p.detach().double()) for name, p in model.named_parameters()}
    model.float()
    model.half()
    changes = {}
    for name, parameter in model.named_parameters():
        dtype, old = before[name]
        change = (parameter.detach().double() - old).abs() / old.abs().clamp_min(1e-30)
        changes.setdefault(dtype_name(dtype), []).append(change.flatten())
    found = {dtype: torch.cat(parts) for dtype, parts in changes.items()}
    found = {dtype: (float((c > 0).double().mean()), float(c.max())) for dtype, c in found.items()}
    weight = model.prefix.embedding.weight
    found["optimizer"] = (dtype_name(weight.dtype),
                          dtype_name(optimizer.state[weight]["exp_avg"].dtype))
    return found


def half_checkpoint():
    """Load a half state dict into a model whose prefix is float32, by copy and by assign=True.

    Returns {how: (dtype of the prefix afterwards, share of its weights that were rounded)}.
    """
    found = {}
    for how, options in (("copy", {}), ("assign=True", {"assign": True})):
        model = prefix_model()
        old = model.prefix.embedding.weight.detach().clone()
        state = {name: tensor.half() for name, tensor in model.state_dict().items()}
        model.load_state_dict(state, **options)
        new = model.prefix.embedding.weight.detach()
        found[how] = (dtype_name(new.dtype), float((new.float() != old).double().mean()))
    return found
