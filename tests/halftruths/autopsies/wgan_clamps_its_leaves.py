"""The critic's weights are clamped in place outside of no_grad, which autograd forbids.

op = "clamp_"
sure = false
cure = true
dtype = false
"""
import torch
from torch import nn


def network(inputs, outputs, width=8):
    return nn.Sequential(nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs))


class Game:
    def __init__(self, noise=4, data=2):
        self.noise = noise
        self.generator, self.critic = network(noise, data), network(data, 1)
        self.optimizer = torch.optim.RMSprop(self.critic.parameters(), lr=5e-5)

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.generator(torch.randn(len(real), self.noise))
        loss = self.critic(fake).mean() - self.critic(real.float()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for weight in self.critic.parameters():
            weight.clamp_(-0.01, 0.01)  # fails
        return loss.item()


torch.manual_seed(0)
real = torch.randn(16, 2, dtype=torch.float64)
Game().critic_step(real)
