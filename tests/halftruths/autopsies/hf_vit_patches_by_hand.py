"""Masked autoencoding around a half ViT: the mask token put in for patches is float32.

op = "index_put"
odd = "mask_token float32"
how = "parameter"
sure = true
cure = true
"""
import torch
from torch import nn
from transformers import ViTConfig, ViTModel


class MaskedViT(nn.Module):
    def __init__(self, vit, patch):
        super().__init__()
        self.vit = vit
        self.mask_token = nn.Parameter(torch.zeros(vit.config.hidden_size))
        self.to_pixels = nn.Linear(vit.config.hidden_size, 3 * patch * patch).to(vit.dtype)

    def forward(self, images, hidden):
        x = self.vit.embeddings(images)
        patches = x[:, 1:].clone()
        patches[hidden] = self.mask_token  # fails
        x = torch.cat([x[:, :1], patches], dim=1)
        x = self.vit.layernorm(x)
        return self.to_pixels(x[:, 1:])


cfg = ViTConfig(image_size=8, patch_size=4, hidden_size=12, num_hidden_layers=1,
                num_attention_heads=2, intermediate_size=24)
model = MaskedViT(ViTModel(cfg).half(), patch=4)
torch.manual_seed(0)
images = torch.rand(2, 3, 8, 8, dtype=torch.float16)
model(images, hidden=torch.rand(2, 4) < 0.5)
