"""Remedies for updates that get lost. Each changes a prepared run before it starts."""

import torch


def larger_learning_rate(run):
    """Take ten times the learning rate."""
    if "optimizer" in run.batch:
        run.batch["optimizer"].param_groups[0]["lr"] *= 10


def larger_eps(run):
    """Give AdamW an eps of 1e-4, as is advised for half precision."""
    if "optimizer" in run.batch:
        run.batch["optimizer"].param_groups[0]["eps"] = 1e-4


def loss_scaling(run):
    """Scale the loss by 1024 before backward, and the gradients back: what a GradScaler does."""
    if "criterion" in run.batch:
        criterion = run.batch["criterion"]
        run.batch["criterion"] = lambda output, target: 1024 * criterion(output, target)
        for weight in run.model.parameters():
            weight.register_hook(lambda grad: grad / 1024)


def float16_instead(run):
    """Take float16 instead of bfloat16: its fraction has three bits more."""
    run.dtype = torch.float16
    run.model.half()
    for name, value in run.batch.items():
        if isinstance(value, torch.Tensor):
            run.batch[name] = value.half()


def reset_the_sum(run):
    """Start the sum of the losses anew at each log."""
    if "losses" in run.batch:
        step = run.step

        def from_log_to_log(model, batch):
            parts = batch["losses"].split(batch["every"])
            return torch.cat([step(model, {**batch, "losses": part}) for part in parts])

        run.step = from_log_to_log


def step_in_float32(run):
    """Compute AdamW's step in float32, its averages too, and store the weights as before."""

    class InFloat32(torch.optim.AdamW):
        def step(self):
            weights = self.param_groups[0]["params"]
            for weight in weights:
                weight.data, weight.grad = weight.data.float(), weight.grad.float()
            super().step()
            for weight in weights:
                weight.data = weight.data.to(run.dtype)

    if "optimizer" in run.batch:
        run.batch["optimizer"] = InFloat32(run.batch["optimizer"].param_groups)


def stochastic_rounding(run):
    """Step in float32; then chance rounds each weight up or down, the nearer the likelier."""

    class Stochastic(torch.optim.AdamW):
        def step(self):
            weights = self.param_groups[0]["params"]
            for weight in weights:
                weight.data, weight.grad = weight.data.float(), weight.grad.float()
            super().step()
            for weight in weights:
                bits = weight.data.view(torch.int32)  # bfloat16 is the upper half of a float32
                bits += torch.randint_like(bits, 1 << 16)
                bits &= -1 << 16
                weight.data = weight.data.bfloat16()

    if "optimizer" in run.batch and run.dtype is torch.bfloat16:
        run.batch["optimizer"] = Stochastic(run.batch["optimizer"].param_groups)


def compensated(run):
    """Step in float32; keep what rounding cuts off, and add it before the next step (Kahan)."""

    class Compensated(torch.optim.AdamW):
        def step(self):
            weights = self.param_groups[0]["params"]
            for weight in weights:
                cut_off = self.state[weight].get("cut_off", 0)
                weight.data, weight.grad = weight.data.float() + cut_off, weight.grad.float()
            super().step()
            for weight in weights:
                exact, weight.data = weight.data, weight.data.to(run.dtype)
                self.state[weight]["cut_off"] = (exact - weight.data).to(run.dtype)

    if "optimizer" in run.batch:
        run.batch["optimizer"] = Compensated(run.batch["optimizer"].param_groups)


def master_weights(run):
    """Step float32 copies of the weights, and keep them; the model gets them rounded."""

    class Masters(torch.optim.AdamW):
        def step(self):
            weights = self.param_groups[0]["params"]
            for weight in weights:
                master = self.state[weight].get("master", weight.data.float())
                weight.data, weight.grad = master, weight.grad.float()
            super().step()
            for weight in weights:
                self.state[weight]["master"] = weight.data
                weight.data = weight.data.to(run.dtype)

    if "optimizer" in run.batch:
        run.batch["optimizer"] = Masters(run.batch["optimizer"].param_groups)


def autocast_instead(run):
    """Leave the weights in float32; run the forward pass under autocast."""
    if "optimizer" in run.batch:
        run.model.float()
        run.model.forward = torch.autocast(run.device, run.dtype)(run.model.forward)


def float32_average(run):
    """Keep the moving average in float32, whatever the weights are in."""
    if "decay" in run.batch:
        run.model["ema"].float()


def float32_sum(run):
    """Sum in float32, whatever the losses are in."""
    if "total" in run.batch:
        run.batch["total"] = run.batch["total"].float()
