"""The trainer hands the batch over whole, the step wants two tensors: no dtype is wrong here.

sure = false
cure = true
dtype = false
"""
import torch
from torch import nn
from torch.nn.functional import mse_loss


class Lit(nn.Module):
    def training_step(self, *args):
        raise NotImplementedError

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class LitRegressor(Lit):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1, dtype=torch.bfloat16)
        self.register_buffer("scale", torch.tensor(2.0))

    def training_step(self, x, y):
        return mse_loss(self.net(x.bfloat16()).float() * self.scale, y)


class Trainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs
        self.callbacks = []

    def fit(self, module, loader):
        optimizer = module.configure_optimizers()
        for _ in range(self.max_epochs):
            for batch in loader:
                loss = module.training_step(batch)  # fails
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


loader = [(torch.randn(4, 3), torch.randn(4, 1))]
Trainer(max_epochs=1).fit(LitRegressor(), loader)
