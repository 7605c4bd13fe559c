"""A closure keeps its gallery in float16; the queries it is called with are float32.

op = "cdist"
odd = "x2 float16"   # casting x1 instead only moves the error: cdist has no float16 kernel here
how = "cast"
sure = true
cure = true
"""
import torch


def make_searcher(gallery, count):
    gallery = gallery.half()  # enters

    def search(queries):
        distances = torch.cdist(queries, gallery)  # fails
        return distances.topk(count, largest=False).indices

    return search


def embed(images, weight):
    return torch.nn.functional.normalize(images @ weight, dim=-1)


def main():
    torch.manual_seed(0)
    weight = torch.randn(20, 8)
    search = make_searcher(embed(torch.randn(24, 20), weight), count=3)
    queries = embed(torch.randn(2, 20), weight)
    print(search(queries))


main()
