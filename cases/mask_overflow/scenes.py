"""What notebook 07 looks at: where the first NaN is, who looks at whom, and what leaks."""

import torch

from cases.halftruths.dtypes import dtype_name
from cases.lab.numerics import relative_error, show
from cases.lab.run import ask, call, fixed_run, prepare, steady
from cases.mask_overflow.case import with_other_masked
from cases.notebook.exercise import Judgement, answered
from cases.notebook.table import Table

FINE = "all finite"


def watched(case, setting, fixes=(), device="cpu"):
    """Run the program; return (run, mask, [(scores, weights), …] of each layer, output).

    The tensors are noted where the model's own methods return them, so nothing else changes.
    """
    with steady():
        run, _ = fixed_run(case, case.setting(setting), case.pick(fixes), device)
        model, masks, scores, weights = run.model, [], [], []

        def noting(name, found):
            method = getattr(model, name)

            def noted(*given):
                found.append(method(*given))
                return found[-1]

            setattr(model, name, noted)

        for name, found in (("mask", masks), ("scores", scores), ("weights", weights)):
            noting(name, found)
        output = call(run).detach()
    dtype = model.embedding.weight.dtype
    pairs = [(s.detach(), w.detach()) for s, w in zip(scores, weights, strict=True)]
    return run, masks[0].to(dtype), pairs, output


def rows_not_finite(tensor, run):
    """How many rows hold a value that is not finite: (of the padding's, of the kept)."""
    bad = ~torch.isfinite(tensor).all(-1).cpu()
    return int((bad & ~run.keep).sum()), int((bad & run.keep).sum())


def walk(case, setting, fixes=(), device="cpu"):
    """Step by step, how many rows hold values that are not finite. The first step is the cause."""
    run, mask, layers, output = watched(case, setting, fixes, device)
    padding, kept = int((~run.keep).sum()), int(run.keep.sum())
    whole = torch.isneginf(mask).all(-1).cpu()
    rows = [("mask", f"{int(torch.isneginf(mask).sum())} of {mask.numel()} values are -inf",
             f"{int((whole & ~run.keep).sum())} of {padding} rows masked whole",
             f"{int((whole & run.keep).sum())} of {kept} rows masked whole")]
    steps = [(f"layer {i} {name}", tensor) for i, pair in enumerate(layers, start=1)
             for name, tensor in zip(("scores", "weights"), pair, strict=True)]
    for name, tensor in [*steps, ("output", output)]:
        bad = ~torch.isfinite(tensor)
        low, high = rows_not_finite(tensor, run)
        rows.append((name, f"{int(bad.sum())} of {tensor.numel()} values not finite" if bad.any()
                     else FINE, f"{low} of {padding} rows", f"{high} of {kept} rows"))
    return Table(f"What is not finite, step by step, in {dtype_name(mask.dtype)}",
                 ("step", "values", "at padding", "where kept"), rows)


def grid(title, case, setting, fixes=(), layer=1, device="cpu"):
    """Who looks at whom in the first prompt: one grid of weights, for figures.weights_picture."""
    run, mask, layers, _ = watched(case, setting, fixes, device)
    names = ["pad" if not kept else str(token)
             for token, kept in zip(run.batch["tokens"][0].tolist(), run.keep[0].tolist(),
                                    strict=True)]
    return {"title": title, "names": names, "keep": run.keep[0].tolist(),
            "allowed": (mask[0] == 0).tolist(), "weights": layers[layer - 1][1][0].tolist()}


def leaks(case, setting, fixes, device="cpu"):
    """Each dtype with `fixes`: its error by the usual test, and what the masked tokens change.

    The usual test sets the program beside itself in float32, which has the same constant.
    """
    rows, exact = [], None
    for dtype in ("float32", "bfloat16", "float16"):
        low = dtype != "float32"
        with steady():
            run = prepare(case, case.setting({**setting, "dtype": dtype} if low else setting),
                          device, reference=not low)
            for fix in case.pick(fixes):
                fix.apply(run)
            with torch.no_grad():
                output, other = call(run), with_other_masked(run)
        exact = output if exact is None else exact
        rows.append((dtype, show(relative_error(output, exact, run.keep)) if low else "-",
                     show(relative_error(other, output, run.keep))))
    heads = ("dtype", "error against itself in float32", "other tokens under the mask move it by")
    return Table(f"With {' + '.join(fixes)}, scores {setting['scores']}", heads, rows)


def culprit(case, setting, fixes=(), device="cpu"):
    """Where a program goes wrong first: "scores", "mask", "gradients" or "nowhere"."""
    run, _, layers, output = watched(case, setting, fixes, device)
    scores, _ = layers[0]
    if not torch.isfinite(scores).all():
        return "scores"
    if not torch.isfinite(output[run.keep]).all():
        return "mask"
    kinds = [item["kind"] for item in ask(case, setting, fixes, device).costs]
    return "gradients" if "gradients" in kinds else "nowhere"


def diagnose(answers, case, programs, device="cpu"):
    """Print what each program shows, then compare a person's answers with what `culprit` finds.

    answers: a function that returns one word a program. programs: (setting, fixes) each.
    """
    for place, (setting, fixes) in enumerate(programs, start=1):
        said = ", ".join([f"{k} {v}" for k, v in setting.items()] + [f"with {f}" for f in fixes])
        print(f"{place}. {said}: {ask(case, setting, fixes, device).said}")
    texts, trouble = answered(answers, len(programs))
    if trouble:
        return Judgement(False, [trouble])
    passed, lines = True, []
    for place, (text, program) in enumerate(zip(texts, programs, strict=True), start=1):
        found = culprit(case, *program, device)
        passed = passed and text == found
        lines.append(f"{place}. You: {text}. Found: {found}.")
    return Judgement(passed, lines)
