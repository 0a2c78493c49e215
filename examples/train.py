"""An ordinary training script: it knows nothing of profilers. A small character-level transformer on its own source text.

    python examples/train.py --steps 200
    python scripts/profile_kernel.py examples/train.py -- --batch-size 32
"""

import argparse
import logging
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Text(Dataset):
    def __init__(self, text, length):
        self.data = torch.tensor(list(text.encode()), dtype=torch.long)
        self.length = length

    def __len__(self):
        return len(self.data) - self.length - 1

    def __getitem__(self, index):
        piece = self.data[index : index + self.length + 1]
        return piece[:-1], piece[1:]


class Transformer(nn.Module):
    def __init__(self, width, heads, layers, length):
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        return self.head(self.blocks(self.embed(tokens) + self.position[:length], mask=mask, is_causal=True))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("checkpoints"))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = Path(__file__).read_text() * 4
    loader = DataLoader(Text(text, args.length), args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    model = Transformer(args.width, 4, args.layers, args.length).to(device)
    step_model = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    args.out.mkdir(parents=True, exist_ok=True)

    step = 0
    try:
        while step < args.steps:
            for tokens, targets in loader:
                tokens, targets = tokens.to(device), targets.to(device)
                loss = nn.functional.cross_entropy(step_model(tokens).flatten(0, 1), targets.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                step += 1
                logging.info("step %d loss %.4f lr %.2e", step, loss.item(), schedule.get_last_lr()[0])
                if step % args.save_every == 0:
                    torch.save(model.state_dict(), args.out / f"step{step}.pt")
                if step >= args.steps:
                    break
    finally:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, args.out / "last.pt")


if __name__ == "__main__":
    main()
