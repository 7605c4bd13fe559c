"""The message reader: judged on public reports, on our own evidence, on what it must not know."""

import html
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cases import cli
from cases.halftruths import pages
from cases.halftruths.base import BadInput
from cases.halftruths.messages import reader
from cases.halftruths.messages.words import plain
from cases.lab import recorded_words
from cases.lab.base import ROOT, parse_toml

REPORTS = ROOT.parent / "shared" / "reports" / "reports.jsonl"
WORDS = reader.evidence()[0]

# Raised by our programs, but not about dtypes: something is not there, or too old.
NOT_DTYPES = ("has no attribute", "not compiled with CUDA", "no NVIDIA driver", "Please install")

OTHERS = """
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total)
AttributeError: 'NoneType' object has no attribute 'shape'
KeyError: 'labels'
KeyError: 'half'
ModuleNotFoundError: No module named 'flash_attn'
ImportError: cannot import name 'autocast' from 'torch.amp'
RuntimeError: CUDA error: device-side assert triggered
RuntimeError: CUDA error: no kernel image is available for execution on the device
RuntimeError: CUDA error: an illegal memory access was encountered
RuntimeError: DataLoader worker (pid 1234) exited unexpectedly with exit code 1
RuntimeError: Expected all tensors to be on the same device, but found at least two, cuda:0 and cpu!
RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at dimension 1
RuntimeError: Trying to backward through the graph a second time
RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
RuntimeError: grad can be implicitly created only for scalar outputs
RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "fc.weight"
RuntimeError: scatter(): Expected self.dim() to be equal to index.dim()
RuntimeError: input and hidden tensors are not at the same device, found input tensor at cuda:0
RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled system error
RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED
RuntimeError: stack expects each tensor to be equal size, but got [3, 224] at entry 0 and [1, 224]
RuntimeError: shape '[2, 3]' is invalid for input of size 7
RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory
RuntimeError: FlashAttention only supports Ampere GPUs or newer.
RuntimeError: MmBackward returned an invalid gradient at index 0 - got [3, 4] but expected [4, 3]
ValueError: Expected input batch_size (32) to match target batch_size (16).
ValueError: optimizer got an empty parameter list
ValueError: too many values to unpack (expected 2)
IndexError: Target 10 is out of bounds.
IndexError: index 10 is out of bounds for dimension 0 with size 10
TypeError: forward() missing 1 required positional argument: 'mask'
TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it to the host
TypeError: Net.__init__() got an unexpected keyword argument 'hidden'
NameError: name 'half' is not defined
OSError: some-org/some-model is not a local folder and is not a valid model identifier
FileNotFoundError: [Errno 2] No such file or directory: 'model_fp16.pt'
_pickle.UnpicklingError: invalid load key, 'v'.
torch._dynamo.exc.Unsupported: call_function BuiltinVariable(print)
UserWarning: nn.functional.tanh is deprecated. Use torch.tanh instead.
SyntaxError: invalid syntax
ZeroDivisionError: division by zero
Segmentation fault (core dumped)
my loss does not go down
training is slow on two GPUs
how do I install PyTorch with pip
the accuracy on the test set is low, I average over 5 folds
how do I save a checkpoint every epoch and resume training
""".strip().splitlines()


def kinds(text):
    return [reading.kind for reading in reader.explain(text).readings]


def judge(read, what, capsys):
    """Print how often the right kind is among those found, and first; 95 and 90 % are asked for.

    read: a list of (right kind, [kind found, ...]).
    """
    recognised = sum(kind in found for kind, found in read) / len(read)
    first = sum(found[:1] == [kind] for kind, found in read) / len(read)
    with capsys.disabled():
        print(f"\n{len(read)} {what}: kind recognised {recognised:.1%}, first {first:.1%}")
    assert recognised >= 0.95
    assert first >= 0.90


# ------------------------------------------------------------------ public reports


@pytest.fixture(scope="module")
def reports():
    if not REPORTS.exists():
        pytest.skip("the public reports are not beside this checkout")
    lines = REPORTS.read_text(encoding="utf-8").splitlines()
    return [report for report in map(json.loads, lines) if report["message"]]


def test_the_kind_of_public_reports(reports, capsys):
    read = [(report["kind"], kinds(report["message"])) for report in reports]
    judge(read, "reports", capsys)


def test_a_report_gets_no_claim_but_what_was_recorded_or_is_in_its_words(reports):
    for report in reports:
        for reading in reader.explain(report["message"]).readings:
            check_claims(reading, report["message"])


def test_the_reports_named_are_of_their_kind(reports):
    kind = {report["id"]: report["kind"] for report in reports}
    for rule in reader.rules():
        assert {kind[name] for name in rule["reports"]} <= {rule["kind"]}


def check_claims(reading, text):
    """A torch or device is claimed only of words that were recorded, with just these records."""
    records = {record for words, own in WORDS.items() if words in reader.flat(plain(text))
               for record in own}
    said = " ".join(filter(None, (reading.torch, reading.device)))
    if "recorded on" in said:
        assert records, f"{text}: nothing recorded, yet {said}"
    for device, words in (("a CPU kernel", "cpu|mkl|vml"), ("CUDA", "cuda|cufft"), ("MPS", "mps")):
        if f"name {device}" in said:
            assert re.search(words, text, re.IGNORECASE), f"{text}: {said}"


# ------------------------------------------------------------------ our own evidence


@pytest.mark.parametrize("words", sorted(WORDS))
def test_every_recorded_error_about_dtypes_is_known_with_its_record(words):
    answer = reader.explain(f"RuntimeError: {words}")
    if any(other in words for other in NOT_DTYPES):
        assert not answer.recognised
        return
    first = answer.readings[0]
    assert first.case in {case for case, *_ in WORDS[words]}
    told = "\n".join(first.evidence)
    for case, torch_id, device in WORDS[words]:
        line = re.search(rf"recorded: {case} on torch (.*), {device}", told)
        assert within(torch_id, line[1], reader.ids_of(device))
    for torch_id in reader.ids_of("cpu"):
        said_so = torch_id in {version for _, version, _ in WORDS[words]}
        assert within(torch_id, re.search(r"recorded on (.*?) \(cpu\)", first.torch)[1],
                      reader.ids_of("cpu")) == said_so
    devices = sorted({device for *_, device in WORDS[words]})
    assert re.search(r"recorded on ([a-z ]+?)(?: \(|$)", first.device)[1] == " and ".join(devices)


def within(torch_id, spans, listed):
    """True if spans such as '1.13, 2.2 to 2.14' hold a torch id."""
    def number(text):
        return [int(part) for part in text.split(".")]

    here = number(torch_id.removeprefix("torch-"))
    ends = [part.split(" to ") for part in spans.split(", ")]
    return any(number(part[0]) <= here <= number(part[-1]) for part in ends)


def test_what_a_fix_did_is_counted_from_the_evidence(tmp_path):
    from cases import load
    from cases.lab import evidence

    words = "expected scalar type Float but found BFloat16"
    case, verdicts = load("encoder_bf16"), []
    for torch_id, device in evidence.files(case):
        found = evidence.read(case, torch_id, device)["outcomes"]
        for (setting, fixes), outcome in found.items():
            if not fixes and outcome.verdict == "fails" and outcome.error["message"] == words:
                verdicts.append(found[setting, ("disable_nested_tensor",)].verdict)
    answer = reader.explain(f"{words} in TransformerEncoder")
    assert answer.readings[0].kind == "encoder-fastpath-autocast"
    measured = answer.readings[0].cures[0]["measured"]
    assert f"on {len(verdicts)} recorded programs" in measured
    assert f"{verdicts.count('runs')} then run" in measured


# ------------------------------------------------------------------ what is no error about dtypes


@pytest.mark.parametrize("text", OTHERS)
def test_other_errors_are_not_recognised(text):
    answer = reader.explain(text)
    assert not answer.recognised, answer
    assert "full traceback" in answer.text() and answer.to_json()["send"]


# ------------------------------------------------------------------ whatever people paste

MESSAGE = "expected m1 and m2 to have the same dtype, but got: float != c10::Half"
TRACEBACK = f'''Traceback (most recent call last):
  File "C:\\Users\\me\\run.py", line 3, in <module>
    model(x)
  File "C:\\site-packages\\torch\\nn\\modules\\linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
RuntimeError: {MESSAGE}
'''

PASTED = {
    "one line": MESSAGE,
    "with its type": f"RuntimeError: {MESSAGE}",
    "a traceback": TRACEBACK,
    "colours": TRACEBACK.replace("RuntimeError", "\x1b[31mRuntimeError\x1b[0m"),
    "colours without escape": TRACEBACK.replace("RuntimeError", "[1;31mRuntimeError[0m"),
    "log prefixes": "\n".join(f"2026-11-30 10:11:12,123 ERROR worker[3] {line}"
                              for line in TRACEBACK.splitlines()),
    "ranks": "\n".join(f"[rank0]: {line}" for line in TRACEBACK.splitlines()),
    "pytest": "\n".join(f"E   {line}" for line in TRACEBACK.splitlines()),
    "another language": f"运行时出错了，请帮忙：\n{TRACEBACK}\n谢谢！ Vielen Dank im Voraus",
    "no space before another language": f"报错RuntimeError：{MESSAGE}怎么办",
    "quoted": "> " + TRACEBACK.replace("\n", "\n> "),
    "carriage returns": TRACEBACK.replace("\n", "\r\n"),
    "wrapped": f"RuntimeError: {MESSAGE}".replace("same dtype", "same\n  dtype"),
    "cut short": MESSAGE[:45],
    "entities": MESSAGE.replace("!=", "!&#61;"),
    "a cause in a chain": TRACEBACK + "\nThe above exception was the direct cause of the following "
                          "exception:\n\nTraceback (most recent call last):\n"
                          "  File \"a.py\", line 1\nValueError: the worker failed\n",
    "amid 900 kB of log": "INFO step 1, loss 0.3, lr 1e-4\n" * 15_000 + TRACEBACK
                          + "INFO done\n" * 40_000,
}


@pytest.mark.parametrize("how", PASTED)
def test_whatever_stands_around_the_message(how):
    start = time.perf_counter()
    found = reader.explain(PASTED[how])
    assert time.perf_counter() - start < 2
    assert found.readings[0].kind == "linear-matmul-mismatch"
    if how not in ("cut short", "amid 900 kB of log"):
        dtypes = [operand["dtype"] for operand in found.readings[0].operands]
        assert dtypes == ["float32", "float16"]


def test_the_last_exception_counts_more_than_its_cause():
    cause = 'RuntimeError: "addmm_impl_cpu_" not implemented for \'Half\''
    last = "RuntimeError: Index put requires the source and destination dtypes match, got Half " \
           "for the destination and Float for the source."
    both = f"{cause}\n\nDuring handling of the above exception, another occurred:\n\n{last}"
    assert kinds(both)[:2] == ["indexed-write-dtype", "cpu-half-not-implemented"]
    assert "earlier exception" in reader.explain(both).readings[1].why


def test_what_stands_beside_the_same_words_decides():
    words = "expected scalar type Half but found Float"
    assert kinds(words)[0] == "linear-matmul-mismatch"
    assert kinds(f"in F.layer_norm: {words}")[0] == "norm-mixed-dtype"
    inside = f"{words} (torch._transformer_encoder_layer_fwd)"
    assert kinds(inside)[0] == "encoder-fastpath-autocast"
    assert "layer_norm" in reader.explain(f"in F.layer_norm: {words}").readings[0].why


@pytest.mark.parametrize("symptom, kind", [
    ("loss is nan with fp16", "activation-or-loss-overflow"),
    ("my LSTM does not like bf16 input", "rnn-dtype"),
    ("GradScaler keeps skipping steps", "gradscaler-protocol"),
    ("EMA weights barely move in bf16", "ema-in-low-precision"),
    ("how do I turn a bfloat16 tensor into numpy", "bf16-to-numpy"),
])
def test_symptoms_in_words(symptom, kind):
    assert kinds(symptom)[0] == kind


@pytest.mark.parametrize("words", [
    "Index put requires the source and desti", "Attempting to unscale FP",
    "Expected query, key, and value to have the s", "Input type (float) and bias ty",
    '"addmm_impl_cpu_" not implemen', "mixed dtype (CPU): expect para",
    "linalg.inv: Low precision d",
])
def test_a_message_cut_short_is_still_known(words):
    assert reader.explain(words).recognised
    assert reader.explain(f"Traceback (most recent call last):\nRuntimeError: {words}").recognised


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("name, kind", [
    ("encoder_bf16", "encoder-fastpath-autocast"), ("chatglm_prefix", "linear-matmul-mismatch"),
])
def test_a_live_traceback_is_read(name, kind):
    import traceback

    import cases
    from cases.lab.case import DTYPES

    case = cases.load(name)
    setting = case.setting()
    run = case.prepare(setting, "cpu", DTYPES[setting["dtype"]])
    with pytest.raises(RuntimeError) as caught:
        run.step(run.model, run.batch)
    first = reader.explain("".join(traceback.format_exception(caught.value))).readings[0]
    assert (first.kind, first.case) == (kind, name)


@pytest.mark.parametrize("size, said", [(2, ("Half", "Float")), (8, ("Float", "Half"))])
def test_expected_and_found_name_the_two_dtypes_and_not_which_is_which(size, said):
    import torch

    half, single = torch.ones(2, size, size, dtype=torch.float16), torch.ones(2, size, size)
    with pytest.raises(RuntimeError) as caught:
        torch.bmm(half, single)
    assert str(caught.value) == "expected scalar type {} but found {}".format(*said)
    means = " ".join(operand["means"] for operand in
                     reader.explain(str(caught.value)).readings[0].operands)
    assert "not their order" in means and "first" not in means


def test_texts_of_our_own(capsys):
    lines = Path(__file__).with_name("explain_texts.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("|", 1) for line in lines if not line.startswith("#")]
    read = [(kind, kinds(text)) for kind, text in pairs]
    judge(read, "texts of our own", capsys)


@pytest.mark.parametrize("words, operands", [
    ('"addmm_impl_cpu_" not implemented for \'Half\'', "dtype float16"),
    ("expected scalar type Half but found Float", "expected float16, found float32"),
    ("mat1 and mat2 must have the same dtype, but got Float and BFloat16",
     "input float32, weight bfloat16"),
    ("Expected query, key, and value to have the same dtype, but got query.dtype: c10::Half "
     "key.dtype: float and value.dtype: float instead.",
     "query float16, key float32, value float32"),
    ("Index put requires the source and destination dtypes match, got BFloat16 for the destination "
     "and Float for the source.", "destination bfloat16, source float32"),
    ("Input type (torch.cuda.HalfTensor) and weight type (torch.cuda.FloatTensor) should be the "
     "same", "input float16, weight float32"),
    ("Input and parameter tensors are not the same dtype, found input tensor with Float and "
     "parameter tensor with Half", "input float32, weight float16"),
    ("Found dtype Double but expected Float", "found float64, expected float32"),
])
def test_operands_are_named(words, operands):
    first = reader.explain(words).readings[0]
    assert ", ".join(f"{o['name']} {o['dtype']}" for o in first.operands) == operands


def test_rules_are_whole():
    for rule in reader.rules():
        texts = {key: [reader.pattern(text) for text in rule[key]]
                 for key in ("says", "may_say", "symptoms", "with")}
        named = {name for key in ("says", "may_say", "symptoms") for pattern in texts[key]
                 for name in pattern.groupindex}
        assert named == set(rule["means"]), rule["kind"]
        assert reader.pattern(rule["topics"])
        assert rule["checks"] and rule["cures"] and all(cure["costs"] for cure in rule["cures"])


def test_cases_and_fixes_named_by_the_rules_exist():
    import cases

    for rule in reader.rules():
        for cure in rule["cures"]:
            if "fix" in cure:
                case, fix = cure["fix"].split(":")
                cases.load(case).pick([fix])
                assert case in rule["cases"], rule["kind"]
        for name in rule["cases"]:
            assert reader.notebook(name) == cases.load(name).notebook


# ------------------------------------------------------------------ the answer's forms, bad input


def test_json_is_the_contract():
    found = json.loads(json.dumps(reader.explain(MESSAGE).to_json()))
    assert found["recognised"] is True
    assert {"kind", "why", "device", "torch", "operands", "checks", "cures", "case",
            "evidence"} <= set(found["readings"][0])
    assert {"text", "costs"} <= set(found["readings"][0]["cures"][0])
    assert reader.explain("the quick brown fox").to_json()["readings"] == []


def test_html_says_what_the_text_says_and_escapes_it():
    page = reader.explain("<b>float16</b> LSTM <script>alert(1)</script> dtype")._repr_html_()
    assert "<script>" not in page and "&lt;" not in reader.explain(TRACEBACK).text()
    for text in (TRACEBACK, "the quick brown fox"):
        answer = reader.explain(text)
        page, said = re.sub("</?a\\b[^>]*>", "", answer._repr_html_()), answer.text()
        assert "&quot;" in page or "&#x27;" in page
        for heading, rows in answer.blocks():
            assert html.escape(heading) in page and heading in said
            for name, words in rows:
                assert f">{html.escape(words)}</td>" in page and words in said
                assert f">{html.escape(name)}</th>" in page or not name
        tags = re.findall(r"<(/?)(table|caption|tbody|tr|th|td)\b", page)
        assert sum(-1 if closing else 1 for closing, _ in tags) == 0


@pytest.mark.parametrize("text, addresses", [
    (f"RuntimeError: {MESSAGE}", [pages.page("02_llama_vision.ipynb")]),
    ("the quick brown fox", []),
])
def test_an_address_in_the_html_is_a_link(text, addresses):
    shown = reader.explain(text)._repr_html_()
    links = re.findall(r'<a href="([^"]*)" target="_blank" rel="noopener">\1</a>', shown)
    assert links == addresses
    assert re.sub("<a .*?</a>", "", shown).count("https://") == 0


@pytest.mark.parametrize("text, shown", [
    ("see https://a.org/b_c.html, or (http://d.org/?e=1&f).",
     'see [https://a.org/b_c.html], or ([http://d.org/?e=1&amp;f]).'),
    ("<a href='https://a.org/'>x</a>", "&lt;a href=&#x27;[https://a.org/]&#x27;&gt;x&lt;/a&gt;"),
    ("javascript:alert(1) https:// file:///etc", "javascript:alert(1) https:// file:///etc"),
    ("https://a.org/\"onclick=alert(1)", "[https://a.org/]&quot;onclick=alert(1)"),
])
def test_only_an_address_becomes_a_link(text, shown):
    links = re.sub(r"\[(.*?)\]", r'<a href="\1" target="_blank" rel="noopener">\1</a>', shown)
    assert pages.linked(text) == links


@pytest.mark.parametrize("bad, words", [
    ("", "empty"), (" \n\t ", "empty"), (b"\x7fELF\x00\x01\x02\x00" * 50, "not text"),
    ("\x00\x01", "not text"), ("x" * (reader.LIMIT + 1), "1,000,000 bytes"),
    (None, "not NoneType"),
])
def test_bad_input_is_one_clear_line(bad, words):
    with pytest.raises(BadInput, match=words) as caught:
        reader.explain(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a" * 900_000, "not implemented " * 50_000, "dtype: " * 100_000,
                                  'Error: "' * 100_000, "x_cpu" * 200, "[0;" * 300_000])
def test_no_text_makes_it_hang(text):
    start = time.perf_counter()
    reader.explain(text)
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize("damage, said", [
    ('{"format": 2, "prov', r"is damaged \(.*\); record it again$"),
    ('{"format": 3, "provenance": {}}', "has format 3; this version reads up to 2$"),
])
def test_damaged_evidence_is_one_clear_line(tmp_path, damage, said):
    path = tmp_path / "cases" / "mine" / "evidence" / "torch-2.13-cpu.json"
    path.parent.mkdir(parents=True)
    path.write_text(damage, encoding="utf-8")
    with pytest.raises(BadInput, match=f"^torch-2.13-cpu.json of case mine {said}"):
        recorded_words.gathered(tmp_path)


def test_the_reader_knows_what_the_evidence_says():
    words, fixes = recorded_words.gathered()
    assert reader.evidence() == (words, fixes)
    assert reader.RECORDED.read_text(encoding="utf-8") == recorded_words.text(words, fixes), (
        "run python -m cases.lab.recorded_words, or make notebooks")


def test_the_reader_reads_the_rules_that_we_write():
    assert reader.RULES.read_text(encoding="utf-8") == recorded_words.rules_text(), (
        "run python -m cases.lab.recorded_words, or make notebooks")
    assert json.loads(recorded_words.rules_text()) == parse_toml(
        reader.RULES.with_suffix(".toml").read_text(encoding="utf-8"))["rule"]


def run(*argv, given=b""):
    done = subprocess.run([sys.executable, "-m", "cases", "explain", *argv], input=given, cwd=ROOT,
                          capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_command_line_reads_standard_input_without_torch():
    code, out, _ = run("-", "--json", given=TRACEBACK.encode("utf-16"))
    assert code == 0 and json.loads(out)["recognised"]
    code, out, _ = run("-", "--json", given="caf\u00e9 ".encode("latin-1") + TRACEBACK.encode())
    assert code == 0 and json.loads(out)["readings"][0]["kind"] == "linear-matmul-mismatch"
    probe = "import sys; sys.argv = ['cases', 'explain', 'x']\n" \
            "try:\n    import runpy; runpy.run_module('cases', run_name='__main__')\n" \
            "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 False"


def test_where_a_message_fits_no_symptom_is_compiled():
    """To compile all patterns takes as long as all the rest of an answer."""
    reader.pattern.cache_clear()
    assert reader.explain(MESSAGE).recognised
    words = {text for rule in reader.rules() for key in ("says", "may_say", "with")
             for text in rule[key]}
    assert reader.pattern.cache_info().currsize < len(words)


def test_ten_megabytes_of_log_are_refused_in_a_line():
    code, out, err = run("-", given=b"RuntimeError: x\n" * 650_000)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and "1,000,000" in err


def test_the_same_from_the_whole_command_line(capsys):
    assert cli.main(["explain", "the quick brown fox"]) == 0
    assert "Not recognised" in capsys.readouterr().out
    assert cli.main(["explain", ""]) == 2
    assert capsys.readouterr().err.startswith("python -m cases: empty")
