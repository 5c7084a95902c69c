"""Small models for clients: words, a batch of four with int64 in and out, and images of the size that docs show."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.frontends.small_networks import Network, extracted
from tests.serving.served import scenario_file, write_files

WORDS = 10


class Words(nn.Module):
    """A batch of sentences; answers with numbers, and with the place of the largest one."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.end = nn.Embedding(WORDS, 6), nn.Linear(6, 5)

    def forward(self, words: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the words of each sentence."""
        sums = self.end(self.table(words).sum(1) * scale)
        return sums, sums.argmax(1)


class Images(nn.Module):
    """A network for the images of SqueezeNet, of little work."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.end = nn.Conv2d(3, 4, 3, stride=32), nn.Linear(4, 1000)

    def forward(self, x: Tensor) -> Tensor:
        """Classes of an image."""
        return self.end(self.first(x).relu().mean((2, 3)))


@functools.cache
def open_networks() -> dict[str, Network]:
    """The networks by label."""
    torch.manual_seed(2)
    words = extracted(Words(), (torch.randint(WORDS, (4, 3)), torch.ones(1)))
    return {"words": words, "squeezenet": extracted(Images(), (torch.randn(1, 3, 224, 224),))}


def client_of(address: str) -> http.client.HTTPConnection:
    """A client of a server."""
    return http.client.HTTPConnection(address.removeprefix("http://"), timeout=300)


def answered(address: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and body of an answer: from JSON, text, or bytes where tensors are behind it."""
    with contextlib.closing(client_of(address)) as client:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request("GET" if body is None else "POST", path, body, sent)
        answer = client.getresponse()
        text = answer.read()
        kind = answer.getheader("Content-Type", "")
    if kind == "application/json":
        return answer.status, answer.headers, json.loads(text)
    return answer.status, answer.headers, text.decode() if kind.startswith("text/") else text


def open_scenario(folder: Path, labels: dict[str, dict[str, Any]], **settings: Any) -> Path:
    """scenario.yaml for some of them on one lane."""
    models = {
        label: {**write_files(label, open_networks()[label]), **own} if label in open_networks() else own
        for label, own in labels.items()
    }
    return scenario_file(folder / "scenario.yaml", models, lanes=1, **settings)
