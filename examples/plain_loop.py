"""The Stopwatch and the NVTX ranges in a plain PyTorch loop, with no Lightning.

python examples/plain_loop.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # scikit-learn ships no types
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from lightning_timing import NVTXRangeWrapper, Stopwatch


def main() -> None:
    Stopwatch().enable(num_warmup_iters=10, print_every_n_iters=None, do_cuda_sync=False)
    NVTXRangeWrapper().enable(sync_on_push=False, sync_on_pop=False, keep_track_of_range_order=True)
    Stopwatch().set_cpu_usage_meas_name("step")

    torch.manual_seed(0)
    Stopwatch().start_one_time_measurement("load_data")
    loader = load_data()
    Stopwatch().end_one_time_measurement("load_data")
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(4):
        for step, (images, labels) in enumerate(loader):
            loss = train_step(model, optimizer, images, labels)
            if step % 10 == 0:  # in some iterations only
                Stopwatch().start_meas("accuracy")
                accuracy = (model(images).argmax(-1) == labels).float().mean()
                Stopwatch().end_meas("accuracy")
                print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy.item():.2f}")
            Stopwatch().finish_iter()

    Stopwatch().print_eval_times()
    Stopwatch().disable()
    NVTXRangeWrapper().disable()


def load_data() -> DataLoader[tuple[Tensor, ...]]:
    digits = load_digits()
    images = torch.as_tensor(digits.data, dtype=torch.float32) / 16
    return DataLoader(TensorDataset(images, torch.as_tensor(digits.target)), batch_size=64, shuffle=True)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> Tensor:
    """Measures and marks its parts: the two singletons are the same ones everywhere, and nothing is handed down."""
    ranges = NVTXRangeWrapper()
    ranges.range_push("step")
    Stopwatch().start_meas("step")
    optimizer.zero_grad()
    loss = torch.zeros(())
    for half_images, half_labels in zip(images.chunk(2), labels.chunk(2), strict=True):  # twice in an iteration
        Stopwatch().start_meas("forward_backward")
        ranges.range_push("forward_backward")
        half_loss = functional.cross_entropy(model(half_images), half_labels) / 2
        half_loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += half_loss.detach()
        ranges.range_pop()
        Stopwatch().end_meas("forward_backward")
    optimizer.step()
    Stopwatch().end_meas("step")
    ranges.range_pop("step")  # raises if another range is the innermost one
    return loss


if __name__ == "__main__":
    main()
