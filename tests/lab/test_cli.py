"""The command line is a contract: exit codes, one line on standard error, the keys of the JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import cases
from cases import cli
from cases.halftruths.base import BadInput
from cases.halftruths.messages import reader
from cases.lab import advice, evidence, gate, recorded_words, torches

KEYS = ["case", "factors", "fixes", "device", "torch", "provenance", "status", "verdict", "error",
        "where", "output_dtype", "relative_error", "costs"]
NAMES = ", ".join(cases.NAMES)


def ask(capsys, *argv):
    """Call the command line in this process; return (exit code, standard output, error)."""
    code = cli.main([str(part) for part in argv])
    return code, *capsys.readouterr()


# ------------------------------------------------------------------ bad input

BAD = [
    ([], "required: list|run|check|record|new|advice|torches", ""),
    (["rnu"], "'rnu'", "run"),
    (["run"], "CASE", ""),
    (["run", "encoder"], "unknown case 'encoder'", NAMES),
    (["check", "encoder"], "unknown case 'encoder'", f"{NAMES}, advice"),
    (["record", "encoder"], "unknown case 'encoder'", f"{NAMES}, advice"),
    (["new", "Kv-Cache"], "'Kv-Cache' cannot be a case's name", "words joined by _"),
    (["advice", "A9"], "unknown advice 'A9'", "A1, A2, "),
    (["advice", "A1", "--torch", "torch-9"], "unknown torch 'torch-9'", "torch-2.13"),
    (["run", "encoder_bf16", "--fix", "nope"], "unknown fix 'nope'", "disable_nested_tensor"),
    (["run", "encoder_bf16", "--set", "colour=red"], "unknown factor 'colour'", "phase, source"),
    (["run", "encoder_bf16", "--set", "phase=test"], "unknown value 'test'", "validate, train"),
    (["run", "encoder_bf16", "--set", "phase="], "unknown value ''", "validate, train"),
    (["run", "encoder_bf16", "--set", "phase"], "FACTOR=VALUE, not 'phase'", ""),
    (["run", "encoder_bf16", "--set", "=train"], "unknown factor ''", "phase, source"),
    (["run", "encoder_bf16", "--device", "tpu"], "unknown device 'tpu'", "cpu, cuda"),
    (["run", "encoder_bf16", "--torch", "torch-9"], "unknown torch 'torch-9'", "torch-2.13"),
    (["check", "--torch", "torch-9"], "unknown torch 'torch-9'", "torch-2.13"),
    (["run", "encoder_bf16", "--nope"], "unrecognized arguments: --nope", ""),
]


@pytest.mark.parametrize(("argv", "said", "allowed"), BAD, ids=lambda v: " ".join(v) or "nothing"
                         if isinstance(v, list) else "")
def test_bad_input_is_exit_2_and_one_line(argv, said, allowed, capsys):
    code, out, err = ask(capsys, *argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and err.startswith("python -m cases: ")
    assert said in err and allowed in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("command", ["run", "check", "record", "advice"])
def test_cuda_without_a_gpu_is_one_line(command, capsys):
    code, out, err = ask(capsys, command, "encoder_bf16", "--device", "cuda")
    assert (code, out) == (2, "")
    assert err == ("python -m cases: device 'cuda' asked for, but this torch sees no GPU; "
                   "allowed: cpu\n")


def test_a_torch_that_is_not_here_cannot_be_checked(capsys, monkeypatch):
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == torches.current())
    other = next(name for name in torches.ids() if name != torches.current())
    code, out, err = ask(capsys, "check", "encoder_bf16", "--torch", other)
    assert (code, out) == (2, "")
    assert err == (f"python -m cases: torch {other!r} is not live here; live: "
                   f"{torches.current()}\n")


# ------------------------------------------------------------------ what it answers


def test_an_outcome_in_json(capsys):
    code, out, err = ask(capsys, "run", "encoder_bf16", "--json")
    assert (code, err) == (0, "")
    outcome = json.loads(out)
    assert list(outcome) == KEYS
    assert outcome["case"] == "encoder_bf16"
    assert outcome["factors"] == {"phase": "validate", "source": "tokens", "mask": "on",
                                  "dtype": "bfloat16", "batch_first": "on"}
    assert (outcome["fixes"], outcome["device"]) == ([], "cpu")
    assert (outcome["torch"], outcome["provenance"]) == (torch.__version__, "live")
    assert (outcome["status"], outcome["verdict"]) == ("raised", "fails")
    assert outcome["error"] == {"type": "RuntimeError",
                                "message": "expected scalar type Float but found BFloat16"}
    assert set(outcome["where"]) == {"module", "op", "operands", "origin"}
    assert outcome["where"]["module"] == "encoder.layers.0"
    for operand in outcome["where"]["operands"]:
        assert set(operand) == {"name", "dtype", "shape", "device"}
    assert (outcome["output_dtype"], outcome["relative_error"]) == (None, None)
    assert outcome["costs"] == []


def test_factors_and_fixes_are_read_in_any_order_and_answered_in_the_cases(capsys):
    code, out, _ = ask(
        capsys, "run", "encoder_bf16", "--set", "mask=off", "--set", "phase=validate",
        "--fix", "disable_mha_fastpath", "--fix", "cast_embedding_output", "--json",
    )
    outcome = json.loads(out)
    assert code == 0 and list(outcome) == KEYS
    assert list(outcome["factors"]) == ["phase", "source", "mask", "dtype", "batch_first"]
    assert outcome["factors"]["mask"] == "off"
    assert outcome["fixes"] == ["cast_embedding_output", "disable_mha_fastpath"]
    assert outcome["status"] == "ran" and outcome["error"] is None and outcome["where"] is None
    assert outcome["output_dtype"] in ("bfloat16", "float32")
    assert isinstance(outcome["relative_error"], float)


def test_a_cost_says_its_kind_and_a_text(capsys):
    _, out, _ = ask(capsys, "run", "encoder_bf16", "--fix", "encoder_weights_bf16", "--json")
    outcome = json.loads(out)
    assert outcome["verdict"] == "costs"
    assert {"master_weights"} <= {cost["kind"] for cost in outcome["costs"]}
    assert all(set(cost) == {"kind", "text"} for cost in outcome["costs"])


def test_an_outcome_in_words(capsys):
    code, out, _ = ask(capsys, "run", "encoder_bf16")
    assert code == 0, "a reproduced failure is success"
    first, where, label = out.splitlines()
    assert first == "✗ fails: RuntimeError: expected scalar type Float but found BFloat16"
    assert "encoder.layers.0" in where and "float32" in where
    assert label == f"  live: cpu, torch {torch.__version__}"


def test_what_is_not_live_is_shown_as_recorded(capsys, monkeypatch):
    recorded = [entry["id"] for entry in torches.listed()
                if entry["id"] != torches.current()
                and evidence.read(cases.load("encoder_bf16"), entry["id"])]
    if not recorded:
        pytest.skip("no evidence from another torch")
    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id == torches.current())
    code, out, _ = ask(capsys, "run", "encoder_bf16", "--torch", recorded[0], "--json")
    outcome = json.loads(out)
    assert code == 0
    assert list(outcome) == KEYS + ["recorded"]
    assert outcome["provenance"] == "recorded" and outcome["torch"] != torch.__version__
    assert set(outcome["recorded"]) == {"torch", "device", "date"}
    _, out, _ = ask(capsys, "run", "encoder_bf16", "--torch", recorded[0])
    assert f"recorded on {outcome['recorded']['date']}" in out


def test_list(capsys):
    code, out, _ = ask(capsys, "list", "--json")
    entries = json.loads(out)
    assert code == 0 and [entry["case"] for entry in entries] == list(cases.NAMES)
    for entry in entries:
        assert {"case", "title", "notebook", "error", "factors", "fixes"} <= set(entry)
        assert all(values for values in entry["factors"].values())
        for fix in entry["fixes"]:
            assert set(fix) == {"name", "origin", "help"} and fix["help"].strip()
            assert fix["origin"] in ("article", "ours", "trap")
    code, words, _ = ask(capsys, "list")
    assert code == 0
    assert all(f"{name}: " in words for name in cases.NAMES)


def test_torches(capsys):
    code, out, _ = ask(capsys, "torches", "--json")
    entries = json.loads(out)
    assert code == 0 and [entry["id"] for entry in entries][:1] == ["torch-2.13"]
    for entry in entries:
        assert {"id", "version", "python", "how", "for", "live", "recorded"} <= set(entry)
    assert next(e for e in entries if e["id"] == torches.current())["live"] is True
    code, words, _ = ask(capsys, "torches")
    assert code == 0 and all(entry["id"] in words for entry in entries)
    assert len(words.splitlines()) == len(entries)


def test_torches_says_live_and_recorded_apart(capsys, monkeypatch):
    def files(case):
        return [("torch-2.6", "cuda"), ("torch-2.6", "cpu"), ("torch-1.13", "cpu"),
                ("torch-9.0", "cuda")][:4 if case.name == "cpu_half" else 1]

    monkeypatch.setattr(torches, "is_live", lambda torch_id: torch_id in ("torch-2.1", "torch-2.6"))
    monkeypatch.setattr(evidence, "files", files)
    _, out, _ = ask(capsys, "torches", "--json")
    found = {entry["id"]: (entry["live"], entry["recorded"]) for entry in json.loads(out)}
    expected = {entry["id"]: (False, []) for entry in torches.listed()}
    expected.update({"torch-2.1": (True, []), "torch-2.6": (True, ["cpu", "cuda"]),
                     "torch-1.13": (False, ["cpu"]), "torch-9.0": (False, ["cuda"])})
    assert found == expected and list(found)[-1] == "torch-9.0"
    _, words, _ = ask(capsys, "torches")
    said = {line.split()[0]: line for line in words.splitlines()}
    assert " live, recorded on cpu and cuda " in said["torch-2.6"]
    assert " live  " in said["torch-2.1"] and "recorded" not in said["torch-2.1"]
    assert " recorded on cpu " in said["torch-1.13"] and "live" not in said["torch-1.13"]
    assert " not here " in said["torch-2.0"]
    assert "not in the list" in said["torch-9.0"]


# ------------------------------------------------------------------ check and record


def test_check_goes_on_after_an_interpreter_that_died(capsys, monkeypatch):
    def dies_once(case, torch_id, device):
        if case.name == "cpu_half":
            raise RuntimeError("torch-1.13: the interpreter died (exit code 1)")
        return []

    monkeypatch.setattr(gate, "check", dies_once)
    code, out, err = ask(capsys, "check", "cpu_half", "lost_updates")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"✗ cpu_half on {torches.current()}: not checked, torch-1.13: the interpreter died "
        "(exit code 1)",
        f"✓ lost_updates on {torches.current()}: 0 differences",
    ]


def test_check_says_a_line_a_case_and_the_difference(capsys, monkeypatch):
    def one(case, torch_id, device):
        return ["it was red, is green"] if case.name == "encoder_bf16" else []

    monkeypatch.setattr(gate, "check", one)
    code, out, err = ask(capsys, "check")
    lines = out.splitlines()
    assert (code, err) == (1, "")
    assert lines[0] == "✗ it was red, is green"
    assert [line.split()[1] for line in lines[1:]] == [*cases.NAMES, "advice"]
    code, out, _ = ask(capsys, "check", "cpu_half")
    assert code == 0 and out.startswith("✓ cpu_half on ") and len(out.splitlines()) == 1


def test_record_writes_where_it_is_told(capsys, monkeypatch, tmp_path):
    case = cases.load("encoder_bf16")
    few = [gate.ask(case, None, fixes, "cpu", None) for fixes in ((), ("mask_to_device",))]
    monkeypatch.setattr(gate, "sweep", lambda *args: iter(few))
    before = evidence.path_of(case, torches.current(), "cpu").read_bytes()
    code, out, err = ask(capsys, "record", "encoder_bf16", "--out", tmp_path)
    path = tmp_path / "encoder_bf16" / f"{torches.current()}-cpu.json"
    assert (code, err) == (0, "")
    assert out == f"✓ encoder_bf16: 2 outcomes in {path}\n"
    data = json.loads(path.read_text(encoding="utf-8"))
    (_, by_result), = data["outcomes"]
    assert list(by_result.values()) == [["", "mask_to_device"]]
    assert data["provenance"]["torch"] == torch.__version__
    assert data["provenance"]["digest"] == case.digest
    assert evidence.path_of(case, torches.current(), "cpu").read_bytes() == before


def test_cases_recorded_into_one_folder_do_not_overwrite_each_other(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(gate, "sweep", lambda *args: iter(()))
    monkeypatch.setattr(advice, "observe", lambda id, device: [])
    code, _, _ = ask(capsys, "record", "--out", tmp_path)
    assert code == 0
    surveys = sum(len(cases.load(name).surveys) for name in cases.NAMES)
    assert len(list(tmp_path.rglob("*.json"))) == len(gate.units()) + surveys


def test_record_renews_what_explain_knows_of_the_evidence(capsys, monkeypatch, tmp_path):
    stale = tmp_path / "recorded.json"
    stale.write_text("{}")
    monkeypatch.setattr(reader, "RECORDED", stale)
    monkeypatch.setattr(gate, "record", lambda *args: [])
    assert ask(capsys, "record", "encoder_bf16", "--out", tmp_path) == (0, "", "")
    assert stale.read_text() == "{}", "that evidence is not the checkout's"
    said = "✓ recorded.json renewed, for `explain`\n"
    assert ask(capsys, "record", "encoder_bf16") == (0, said, "")
    assert stale.read_text("utf-8") == recorded_words.text(*recorded_words.gathered())
    assert ask(capsys, "record", "encoder_bf16") == (0, "", ""), "it is up to date"


def test_a_file_in_the_way_is_exit_1_and_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(gate, "sweep", lambda *args: iter(()))
    (tmp_path / "file").write_text("")
    code, _, err = ask(capsys, "record", "encoder_bf16", "--out", tmp_path / "file")
    assert code == 1 and err.count("\n") == 1


def test_a_dead_interpreter_is_exit_1_and_one_line(capsys, monkeypatch):
    def dead(*args, **kwargs):
        raise RuntimeError("torch-1.13: the interpreter died (killed by signal 9)")

    monkeypatch.setattr(cli, "ask", dead)
    code, out, err = ask(capsys, "run", "encoder_bf16")
    assert (code, out) == (1, "")
    assert err == "python -m cases: torch-1.13: the interpreter died (killed by signal 9)\n"


def test_bad_input_is_not_swallowed_as_something_else():
    with pytest.raises(BadInput, match="allowed: phase, source, mask, dtype, batch_first"):
        cases.load("encoder_bf16").setting({"colour": "red"})


# ------------------------------------------------------------------ as a process


def test_as_a_process():
    root = Path(cases.__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8"}

    def start(*argv):
        return subprocess.Popen([sys.executable, "-m", "cases", *argv], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")

    good, bad = start("run", "encoder_bf16", "--json"), start("run", "nope", "--json")
    out, err = good.communicate()
    assert (good.returncode, err) == (0, "")
    assert list(json.loads(out)) == KEYS
    out, err = bad.communicate()
    assert (bad.returncode, out) == (2, "")
    assert err == f"python -m cases: unknown case 'nope'; allowed: {NAMES}\n"
