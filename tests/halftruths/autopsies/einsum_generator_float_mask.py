"""A generator yields half states with a float32 mask, and mean pooling mixes the two.

op = "einsum"
odd = "mask float32"
how = "cast"
sure = true
cure = true
"""
import torch


def batches(count, size, length, dim):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        lengths = torch.randint(1, length + 1, (size,), generator=generator)
        states = torch.randn(size, length, dim, generator=generator)
        mask = (torch.arange(length) < lengths[:, None]).to(torch.float32)  # enters
        yield {"states": states.half(), "mask": mask, "lengths": lengths}


def mean_pool(states, mask, lengths):
    total = torch.einsum("bt,btd->bd", mask, states)  # fails
    return total / lengths[:, None]


def main():
    head = torch.randn(8, 3, generator=torch.Generator().manual_seed(1)).half()
    logits = []
    for batch in batches(count=2, size=4, length=6, dim=8):
        logits.append(mean_pool(**batch) @ head)
    print(torch.cat(logits).shape)


if __name__ == "__main__":
    main()
