"""What one run did, as data: without torch, so that whatever keeps or shows it needs none."""

from dataclasses import dataclass, field

SIGNS = {"fails": "✗", "moves": "↪", "runs": "✓", "costs": "◐"}


@dataclass
class Outcome:
    """What one run did. Every field is measured; see DESIGN's contract for the JSON form.

    status: "raised" or "ran". verdict: "fails", "moves", "runs" or "costs".
    error: {"type", "message"} or None. where: see cases.lab.run.where_of.
    relative_error: against the same model in float32, padding left out; one digit, or None.
    provenance: "live", "recorded" or "emulated"; `recorded` says where and when, if so.
    """

    case: str
    factors: dict
    fixes: list
    device: str
    torch: str
    status: str
    verdict: str = ""
    error: dict | None = None
    where: dict | None = None
    output_dtype: str | None = None
    relative_error: float | None = None
    costs: list = field(default_factory=list)
    provenance: str = "live"
    recorded: dict | None = None

    @property
    def sign(self):
        return SIGNS[self.verdict]

    @property
    def said(self):
        """One line: the error with its type, or the output dtype, error and costs."""
        if self.status == "raised":
            return f"{self.error['type']}: {self.error['message']}"
        parts = [f"runs, output {self.output_dtype}"]
        if self.relative_error is not None and all(c["kind"] != "error" for c in self.costs):
            parts.append(f"relative error {self.relative_error:g}")
        return ", ".join(parts + [item["text"] for item in self.costs])

    def to_json(self):
        keys = (
            "case factors fixes device torch provenance status verdict error where "
            "output_dtype relative_error costs"
        ).split()
        data = {key: getattr(self, key) for key in keys}
        if self.recorded:
            data["recorded"] = self.recorded
        return data

    @classmethod
    def from_json(cls, data):
        return cls(**data)


def verdict_of(case, outcome):
    """Sign and word. Where a silent failure is still there, that: its verdict is 'costs'."""
    if outcome.status == "ran" and not case.cured(outcome):
        return "✗ still wrong"
    return f"{outcome.sign} {outcome.verdict}"


def label_of(outcome):
    """Where an outcome comes from: 'live, torch 2.13.0, cpu', or 'recorded 2026-11-30, …'."""
    when = f" {outcome.recorded['date']}" if outcome.recorded else ""
    version = outcome.torch.split("+")[0]
    return f"{outcome.provenance}{when}, torch {version}, {outcome.device}"
