"""The benchmark beside other tools: its truths are true, its judge is just, BENCH.md says it."""

import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import bench_peers
import pytest
import torch
from bench_peers import FAILURES, TOOLS

from cases.lab.run import call, steady

ENCODER, LLAMA = FAILURES
LACK = bench_peers.missing("torchlens")


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.case)
def test_the_failing_module_is_the_innermost_that_raises(failure):
    run, raised = failure.prepare(), []
    for path, module in run.model.named_modules():
        def watched(*args, path=path, forward=module.forward, **options):
            try:
                return forward(*args, **options)
            except RuntimeError:
                raised.append(path)
                raise

        module.forward = watched
    with steady(), pytest.raises(RuntimeError):
        call(run)
    assert raised[0] == failure.module


def test_the_origin_is_where_a_cast_cures():
    """Of the assignments of the function that mixes the dtypes, these and no others."""
    lines = LLAMA.program.read_text(encoding="utf-8").splitlines()
    start = lines.index("def embed(model, file, tokens):")
    end = lines.index("    return embeds", start)
    cured = []
    for number in range(start, end):
        name, equals, _ = lines[number].strip().partition(" = ")
        if not equals or name == "embed_text":
            continue
        changed = [*lines]
        changed[number] += f"\n    {name} = {name}.to(model.dtype)"
        scope = {"__name__": "changed"}
        exec("\n".join(changed), scope)
        run = LLAMA.prepare()
        try:
            with steady():
                scope["answer"](run.model, **run.batch)
        except RuntimeError:
            continue
        cured.append(number + 1)
    assert cured == LLAMA.origin_lines() and len(cured) == 2


def test_nothing_outside_is_odd_in_the_encoder():
    run = ENCODER.prepare()
    floating = [*run.model.parameters(), *run.model.buffers()]
    assert {tensor.dtype for tensor in floating} == {torch.float32}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.case)
def test_the_healthy_program_runs(failure):
    with steady():
        assert call(failure.prepare(healthy=True)).dtype is not None


def test_judge_of_places():
    assert bench_peers.found([3], []) == "no"
    assert bench_peers.found([3], [1, 2]) == "no"
    assert bench_peers.found([3], [1, 3, 2, 2]) == "among 3"
    assert bench_peers.found([3], [1, 2, 3]) == bench_peers.found([3], [3, 1]) == "yes"


@pytest.mark.parametrize("text, grade", [
    ("", "no"),
    ("in self_attn.q_proj", "no"),  # a part of the path is not the path
    ("in model.layers.0.self_attn.q_proj.weight", "no"),
    ("in model.layers.1.self_attn.q_proj", "no"),
    ("[nn.Mod] VisionLlama.model.layers.0.self_attn.q_proj", "yes"),
    ("model.layers.0.mlp\nmodel.layers.0.self_attn.q_proj.\nmodel.norm", "among 3"),
])
def test_judge_of_modules(text, grade):
    assert bench_peers.module_named(text, LLAMA, LLAMA.prepare().model) == grade


@pytest.mark.parametrize("text, failure, grade", [
    ("mul(t: f16[64], t: f32[1, 24, 64])", LLAMA, "no"),  # another call
    ("linear(t: f32[24, 64], t: f32[64, 64])", LLAMA, "no"),
    ("linear(t: f32[24, 64], t: f16[64, 64])", LLAMA, "shown"),
    (f"{LLAMA.module} (Linear) input float32, parameters float16", LLAMA, "shown"),
    (f"{LLAMA.module}.weight float32, float16", LLAMA, "no"),
    ("the odd one: weight, float16", LLAMA, "no"),
    ("the odd one: input, float32", LLAMA, "yes"),
    ("odd: src float32", ENCODER, "no"),
    ("_transformer_encoder_layer_fwd(t: f32[8, 80, 32])", ENCODER, "shown"),
    ("no operand is odd", ENCODER, "yes"),
    ("odd: none", ENCODER, "yes"),
    ("all inputs are float32", ENCODER, "yes"),
    ("all inputs are float32", LLAMA, "no"),
])
def test_judge_of_operands(text, failure, grade):
    assert bench_peers.operand_named(text, failure) == grade


def test_judge_of_origins():
    (first, second), name = LLAMA.origin_lines(), "/somewhere/model.py"
    assert bench_peers.origin_named(f"File: {name}:{first} in embed", LLAMA) == "yes"
    assert bench_peers.origin_named(f'File "{name}", line {second}, in embed', LLAMA) == "yes"
    assert bench_peers.origin_named(f"{name}:1\n{name}:{second}\n{name}:2", LLAMA) == "among 3"
    assert bench_peers.origin_named(f"{name}:{first}0", LLAMA) == "no"
    assert bench_peers.origin_named(f"{name}:{first}", ENCODER) is None


@pytest.mark.parametrize("code, said", [
    ("import os; os._exit(3)", "exit 3: nothing said"),
    ("raise ValueError('no')", "exit 1: ValueError: no"),
    ("print('no JSON')", "exit 0: nothing said"),
    ("import time; time.sleep(60)", "no answer in 2 seconds"),
])
def test_a_tool_that_breaks_is_reported(code, said):
    assert bench_peers.ask([sys.executable, "-c", code], limit=2) == {"broke": said}


def test_bad_input(capsys):
    assert bench_peers.main(["tea"]) == 2
    assert capsys.readouterr().err.startswith("bench_peers: no tool 'tea'; allowed: autopsy, ")
    assert bench_peers.main(["--write", "--quick"]) == bench_peers.main(["--write", "hooks"]) == 2
    assert capsys.readouterr().err.count("--write wants every tool and its times") == 2


@pytest.mark.parametrize("absent", [(), ("hooks",)])
def test_the_page_is_written_whole_or_not_at_all(absent, monkeypatch, tmp_path):
    text = bench_peers.PAGE.read_text(encoding="utf-8")
    copy = tmp_path / "BENCH.md"
    copy.write_text(text, encoding="utf-8")
    monkeypatch.setattr(bench_peers, "ROOT", tmp_path)
    monkeypatch.setattr(bench_peers, "PAGE", copy)
    monkeypatch.setattr(bench_peers, "OUT", tmp_path / "build" / "bench.json")
    monkeypatch.setattr(bench_peers, "missing", lambda tool: "not here" if tool in absent else None)
    monkeypatch.setattr(bench_peers, "ask", lambda command: {"broke": "just a test"})
    assert bench_peers.main(["--write"]) == 0
    after = copy.read_text(encoding="utf-8")
    assert (after == text) == bool(absent)
    assert after.startswith(text.split("<!-- made")[0]) and after.endswith(text.split("end of")[1])


def test_without_torchlens_one_line_says_so(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    assert bench_peers.missing("hooks") is None
    monkeypatch.setattr(bench_peers.importlib.metadata, "version", lambda name: "1.0")
    assert bench_peers.missing("torchlens") == (
        "torchlens 1.0 is installed: pip install torchlens==2.36.1")
    monkeypatch.setattr(bench_peers.importlib.metadata, "version", absent)
    assert bench_peers.missing("torchlens") == (
        "torchlens is not installed: pip install torchlens==2.36.1")


def page():
    """The page on the benchmark."""
    return bench_peers.PAGE.read_text(encoding="utf-8")


def told(table):
    """{(case, tool): cells} of tables in Markdown, without the times; counts left out."""
    rows, case = {}, None
    for line in re.findall(r"^\| (.+) \|$", table, re.MULTILINE):
        label, *cells = line.split(" | ")
        if label[:2].isdigit():
            case = label[3:]
        elif label != "---":
            rows[case, label] = [re.sub(r"among \d+", "among", cell) for cell in cells[:-2]]
    return rows


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13.0"), reason="measured on torch 2.13.0")
@pytest.mark.parametrize("tools", [
    [tool for tool in TOOLS if tool != "torchlens"],
    pytest.param(["torchlens"], marks=pytest.mark.skipif(bool(LACK), reason=str(LACK))),
], ids=["all others", "torchlens"])
def test_the_page_says_what_is_measured(tools):
    script = str(Path(bench_peers.__file__))
    results = bench_peers.ask([sys.executable, script, *tools, "--here", "--quick"])
    measured = told(bench_peers.markdown(results))
    labels = {TOOLS[tool][1] for tool in tools}
    written = {key: cells for key, cells in told(page()).items() if key[1] in labels}
    assert len(measured) == len(tools) * len(FAILURES)
    assert measured == written


def test_the_page_names_every_tool():
    assert set(told(page())) == {
        (failure.case, label) for failure in FAILURES for _, label in TOOLS.values()}
