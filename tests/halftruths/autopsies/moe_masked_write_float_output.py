"""A mixture of experts collects bfloat16 results in an output made in the default float32.

op = "index_put"
odd = "output float32"
how = "made"
sure = true
cure = true
"""
import torch
import torch.nn.functional as F


def expert_mlp(tokens, up, down):
    return F.silu(tokens @ up) @ down


def mixture(tokens, router, experts):
    choice = torch.argmax(tokens @ router, dim=-1)
    output = torch.zeros(tokens.shape)  # enters
    for number, (up, down) in enumerate(experts):
        picked = choice == number
        output[picked] = expert_mlp(tokens[picked], up, down)  # fails
    return output


def main():
    torch.manual_seed(0)
    with torch.inference_mode():
        kind = {"dtype": torch.bfloat16}
        experts = [(torch.randn(8, 16, **kind), torch.randn(16, 8, **kind)) for _ in range(3)]
        router = torch.randn(8, 3, **kind)
        tokens = torch.randn(10, 8, **kind)
        print(mixture(tokens, router, experts).dtype)


main()
