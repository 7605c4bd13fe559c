"""The returns to go are summed up in NumPy and reach the decision transformer as float64.

module = "embed_return"
op = "linear"
odd = "input float64"
how = "numpy"
sure = true
cure = true
"""
import numpy as np
import torch
from transformers import DecisionTransformerConfig, DecisionTransformerModel


class Episode:
    def __init__(self, states, actions, rewards):
        self.states, self.actions = states, actions
        self.rewards = np.asarray(rewards)

    def returns_to_go(self, discount=0.99):
        togo = np.zeros(len(self.rewards))
        running = 0.0
        for step in reversed(range(len(togo))):
            togo[step] = running = self.rewards[step] + discount * running
        return togo


def as_inputs(episode, scale=10.0):
    length = len(episode.rewards)
    return dict(
        states=torch.tensor(episode.states)[None],
        actions=torch.tensor(episode.actions)[None],
        returns_to_go=torch.from_numpy(episode.returns_to_go() / scale).view(1, -1, 1),  # enters
        timesteps=torch.arange(length)[None],
        attention_mask=torch.ones(1, length, dtype=torch.long),
    )


def behaviour_cloning_loss(model, episode):
    inputs = as_inputs(episode)
    predicted = model(**inputs).action_preds  # fails
    return (predicted - inputs["actions"]).pow(2).mean()


torch.manual_seed(0)
model = DecisionTransformerModel(DecisionTransformerConfig(
    state_dim=3, act_dim=2, hidden_size=8, max_ep_len=16, n_layer=1, n_head=1, vocab_size=1))
states = [[0.1 * step, 0.0, 1.0] for step in range(4)]
actions = [[0.5, -0.5], [0.2, 0.1], [0.0, 0.0], [1.0, -1.0]]
behaviour_cloning_loss(model, Episode(states, actions, [1, 0, 0, 5])).backward()
