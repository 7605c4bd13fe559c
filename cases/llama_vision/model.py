"""A vision-language model on Llama, loaded in half: a picture and a question, in one sequence."""

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

SIDE, PATCH, WIDTH = 32, 8, 64
MEAN, STD = (0.481, 0.458, 0.408), (0.269, 0.261, 0.276)


class VisionLlama(LlamaForCausalLM):
    def load_vision(self):
        """The parts that see come from files of their own, as nn.Modules do: in float32."""
        self.vision_tower = nn.Sequential(
            nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH), nn.GELU(), nn.Flatten(2)
        )
        self.projector = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, self.config.hidden_size)
        )


def load_model(dtype, attention):
    config = LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        vocab_size=256, pad_token_id=0, attn_implementation=attention,
    )
    model = VisionLlama(config).to(dtype)  # "everything is in half"
    model.load_vision()
    return model.eval()


def load_image(file):
    with Image.open(file) as picture:
        array = np.array(picture.convert("RGB").resize((SIDE, SIDE)))
    pixels = torch.tensor(array, dtype=torch.float32)
    pixels = (pixels / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    return pixels.permute(2, 0, 1).unsqueeze(0)


def embed(model, file, tokens):
    embed_text = model.get_input_embeddings()
    if file is None:
        return embed_text(tokens)
    pixels = load_image(file).to(model.device)  # moves it; float32 it stays
    patches = model.vision_tower(pixels)
    features = model.projector(patches.transpose(1, 2))
    text = embed_text(tokens)
    embeds = torch.cat([features, text], dim=1)  # float32 with float16 is float32
    return embeds


@torch.no_grad()
def answer(model, file, tokens, generate):
    """Logits: of the first new token where text is generated, else of every position."""
    embeds = embed(model, file, tokens)
    if not generate:
        return model(inputs_embeds=embeds).logits  # fails here
    new = model.generate(  # or here
        inputs_embeds=embeds, attention_mask=torch.ones(embeds.shape[:2], device=model.device),
        max_new_tokens=2, do_sample=False, output_logits=True, return_dict_in_generate=True,
    )
    return new.logits[0]


if __name__ == "__main__":  # the failure alone, as a script
    picture = __file__.replace("model.py", "picture.png")
    answer(load_model(torch.float16, "eager"), picture, torch.arange(8)[None], generate=True)
