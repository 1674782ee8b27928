"""Task `gpt`: a transformer writes Python, a character at a time, after the text of Python's own standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from lightning_timing import span

from .base import OptimizerFactory, Task, TaskData

ALPHABET_SIZE = 128  # the characters of ASCII


def standard_library_text(max_characters: int) -> str:
    """The sources of the standard library's public modules, in the order of their names, up to a size."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = ""
    for source in sorted(folder.glob("[a-z]*.py")):
        if len(text) >= max_characters:
            break
        text += source.read_bytes().decode("ascii", errors="ignore")
    return text[:max_characters]


class TextWindows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text, each with the same window one character on: what comes after each character."""

    def __init__(self, text: str, context: int) -> None:
        self.codes = torch.frombuffer(bytearray(text, "ascii"), dtype=torch.uint8).long()
        self.context = context

    def __len__(self) -> int:
        return (len(self.codes) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context
        window = self.codes[start : start + self.context + 1]
        return window[:-1], window[1:]


class SourceTextData(TaskData):
    """The first nine tenths of the text to train on, the last to validate on, in windows of `context` characters."""

    def __init__(self, batch_size: int, num_workers: int, context: int, max_characters: int) -> None:
        super().__init__(batch_size, num_workers)
        self.context = context
        self.max_characters = max_characters

    def setup(self, stage: str) -> None:
        text = standard_library_text(self.max_characters)
        border = len(text) * 9 // 10
        self.train_set = TextWindows(text[:border], self.context)
        self.val_set = TextWindows(text[border:], self.context)


class Block(nn.Module):
    """Causal self-attention, then a perceptron, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * width)
        self.from_heads = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = x + self.attention(self.attention_norm(x))
        out: Tensor = attended + self.perceptron(attended)
        return out

    @span("attention")
    def attention(self, x: Tensor) -> Tensor:
        qkv = self.to_qkv(x).unflatten(-1, (3, self.heads, -1))  # (batch, time, 3, heads, width of a head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.from_heads(mixed.transpose(1, 2).flatten(-2))
        return out


class CharacterGPT(Task):
    """Embeddings, `depth` blocks, and a score for each character that may come next."""

    def __init__(self, context: int, width: int, depth: int, heads: int, optimizer: OptimizerFactory) -> None:
        super().__init__(optimizer)
        self.characters = nn.Embedding(ALPHABET_SIZE, width)
        self.positions = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.scores = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, ALPHABET_SIZE))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        characters, next_characters = batch
        embedded = self.characters(characters) + self.positions
        with span("blocks"):
            hidden = self.blocks(embedded)
        return functional.cross_entropy(self.scores(hidden).flatten(0, 1), next_characters.flatten())
