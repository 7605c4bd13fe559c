"""The autopsy reads wherever code can run: threads, coroutines, generators, callbacks."""

import asyncio
import itertools
import threading

import torch
from scenes import INSIDE, MASK, Net, batch, caught, finds, fits, read, step

from cases import halftruths


def test_threads():
    model, errors = Net().half(), []

    def work():
        errors.append(caught(step, model, batch()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    finds(read(errors[0]), cure=MASK)
    found = []
    thread = threading.Thread(target=lambda: found.append(halftruths.autopsy(errors[0])))
    thread.start()
    thread.join()
    finds(found[0])
    threads = [threading.Thread(target=lambda: found.append(halftruths.autopsy(
        caught(step, Net().half(), batch())))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 9 and all("stopped halfway" not in one.text() for one in found)
    assert len({one.text() for one in found[1:]}) == 1, "two at once disturb each other"


def test_coroutines():
    async def inner(model, x):
        await asyncio.sleep(0)
        mask = x.float()
        return model(mask)

    async def outer(model, x):
        return (await asyncio.gather(inner(model, x), inner(model, x)))[0]

    found = finds(read(caught(asyncio.run, outer(Net().half(), torch.ones(2, 4).half()))),
                  cure=MASK)
    assert found.road[0]["code"] == "mask = x.float()"
    # The cast keeps what is float32 already, and its line is the one to change all the same.
    found = finds(read(caught(asyncio.run, outer(Net().half(), torch.ones(2, 4)))), cure=MASK)
    assert "asyncio" not in found.road[0]["file"]


COROUTINES = """import asyncio, torch
net = torch.nn.Linear(4, 4).half()

async def inner(model, x):
    await asyncio.sleep(0)
    mask = x + 1
    return model(mask)

async def outer(model, x):
    return (await asyncio.gather(inner(model, x), inner(model, x)))[0]

asyncio.run(outer(net, torch.ones(2, 4)))
"""


def test_the_cure_of_a_program_of_coroutines(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(COROUTINES)
    # What a coroutine was handed came from where it was made, which no frame shows.
    found = finds(read(caught(exec, compile(COROUTINES, str(path), "exec"), {})),
                  cure="mask = x.to(torch.float16) + 1", asks="cannot be read from here")
    fits(found.cure, tmp_path)


def test_generators():
    def batches():
        while True:
            yield batch().float()

    def loop(model, source):
        for x in source:
            model(x)

    source = batches()
    finds(read(caught(loop, Net().half(), source)), cure="model(x.to(torch.float16))")
    next(source)  # it goes on

    def thrown():
        model = Net().half()
        for x in batches():
            yield model(x)

    finds(read(caught(lambda: list(thrown()))), cure="yield model(x.to(torch.float16))")
    finds(read(caught(lambda: [m(x) for m in (Net().half(),) for x in batches()])), cure=INSIDE)

    async def stream():
        for x in itertools.islice(batches(), 3):
            yield x

    async def train(model):
        async for x in stream():
            model(x)

    finds(read(caught(asyncio.run, train(Net().half()))), cure="model(x.to(torch.float16))",
          asks="`itertools.islice` got its dtype cannot be read")


def test_classes_decorators_and_callbacks():
    model = Net().half()

    class Trainer:
        __slots__ = ("model", "__dict__")

        def __init__(self):
            self.model = model

        def __call__(self, x):
            return self.run(x=x)

        @torch.no_grad()
        def run(self, **inputs):
            return self.model(inputs["x"])

    finds(read(caught(Trainer(), torch.ones(2, 4))),
          cure="return self.run(x=x.to(torch.float16))")
    for error in (caught(lambda: list(map(model, [torch.ones(2, 4)]))),
                  caught(lambda: sorted([1], key=lambda _: model(torch.ones(2, 4))))):
        found = finds(read(error))
        assert "torch.ones(2, 4, dtype=torch.float16)" in found.cure["code"] and found.sure

    class Deleted:
        def __enter__(self):
            return self

        def __exit__(self, *parts):
            return False

    def run(x):
        with Deleted():
            y = x.float()
            del x
            return model(y)

    finds(read(caught(run, torch.ones(2, 4))), cure="y = x.to(torch.float16)")
