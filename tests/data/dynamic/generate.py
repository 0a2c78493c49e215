"""Greedy generation with a cache of keys and values that grows; it stops at a token that the values decide."""

import torch

PARAMS = {"steps": 8, "stop": 1}


class Decoder(torch.nn.Module):
    def __init__(self, width=16, words=32):
        super().__init__()
        self.embed = torch.nn.Embedding(words, width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, words)

    def forward(self, tokens, cache):
        query, key, value = self.qkv(self.embed(tokens)).chunk(3, -1)
        if cache is not None:
            key, value = torch.cat([cache[0], key], 1), torch.cat([cache[1], value], 1)
        mixed = torch.softmax(query @ key.transpose(1, 2) / 4, -1) @ value
        return self.out(mixed[:, -1]), (key, value)


class Generator(torch.nn.Module):
    def __init__(self, steps, stop):
        super().__init__()
        self.decoder, self.steps, self.stop = Decoder(), steps, stop

    def forward(self, tokens):
        cache, found = None, []
        for _ in range(self.steps):
            logits, cache = self.decoder(tokens, cache)
            tokens = logits.argmax(-1, keepdim=True)
            found.append(logits)
            if self.stop and tokens[0, 0].item() == -1:
                break
        return torch.stack(found)


def get_model_and_input(steps=8, stop=1):
    torch.manual_seed(0)
    return Generator(steps, stop).eval(), torch.randint(0, 32, (1, 4))
