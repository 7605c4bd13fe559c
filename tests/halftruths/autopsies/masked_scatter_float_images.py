"""Image features are normalised in float32 and merged into bfloat16 text as they are.

op = "masked_scatter"
odd = "image_features float32"
how = "cast"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F

IMAGE_TOKEN = 9


def encode_images(patches, projection):
    features = patches @ projection
    return F.layer_norm(features.float(), features.shape[-1:])  # enters


def merge(text, token_ids, image_features):
    places = (token_ids == IMAGE_TOKEN).unsqueeze(-1).expand_as(text)
    return text.masked_scatter(places, image_features)  # fails


def embed(token_ids, patches, table, projection):
    text = table[token_ids]
    if patches is None:
        return text
    return merge(text, token_ids, encode_images(patches, projection))


torch.manual_seed(0)
table = torch.randn(10, 8).bfloat16()
projection = torch.randn(12, 8).bfloat16()
prompt = torch.tensor([[1, 9, 9, 4], [2, 9, 9, 7]])
embed(prompt, None, table, projection)
embed(prompt, torch.randn(4, 12).bfloat16(), table, projection)
