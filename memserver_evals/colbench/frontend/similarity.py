"""How alike two pictures are, -1 to 1. CLIP's cosine is what is published; statistics are for tests."""

import asyncio
import io
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from memserver.errors import SetupError, install_extra


class Similarity(Protocol):
    name: str  # of the measure; it stands in every table

    async def compare(self, first: bytes, second: bytes) -> float:
        """How alike two pictures (PNG) are; 1 for the same."""


class ImageStatistics:
    """A stand-in for CLIP: the cosine of colour histograms and coarse thumbnails.

    It knows no content. No figure by it is reported as ColBench's.
    """

    name = "image statistics (not CLIP)"
    _BINS, _SIDE = 6, 24

    async def compare(self, first: bytes, second: bytes) -> float:
        return await asyncio.to_thread(self._compare, first, second)

    def _compare(self, first: bytes, second: bytes) -> float:
        one, other = self._features(first), self._features(second)
        return float(np.mean([_cosine(a, b) for a, b in zip(one, other, strict=True)]))

    def _features(self, picture: bytes) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        with Image.open(io.BytesIO(picture)) as image:
            small = np.asarray(
                image.convert("RGB").resize((self._SIDE, self._SIDE), Image.Resampling.BOX),
                dtype=float,
            )
        cells = (small // (256 / self._BINS)).astype(int).reshape(-1, 3) @ [
            self._BINS**2,
            self._BINS,
            1,
        ]
        histogram = np.bincount(cells, minlength=self._BINS**3).astype(float)
        return histogram, small.reshape(-1) - 127.5


def _cosine(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths else float(not np.any(first - second))


class ClipSimilarity:
    """The cosine of CLIP's embeddings of the two pictures (ViT-B/32 in the published table)."""

    _MEAN = (0.48145466, 0.4578275, 0.40821073)
    _DEVIATION = (0.26862954, 0.26130258, 0.27577711)

    def __init__(self, model: Path | str) -> None:
        """Load it.

        `model`: a folder with CLIP in transformers' form, or its name on the hub if it is cached. Raises
        SetupError: torch or transformers is missing, or the weights are.
        """
        try:
            import torch  # noqa: PLC0415 - an extra
            from transformers import CLIPModel  # noqa: PLC0415
        except ImportError as error:
            raise SetupError(
                "CLIP needs torch and transformers.", hint=install_extra("local", "colbench")
            ) from error
        try:
            self._model = CLIPModel.from_pretrained(str(model), local_files_only=True).eval()
        except (OSError, ValueError) as error:
            raise SetupError(
                f"There is no CLIP at {model}.",
                hint="Give the folder of openai/clip-vit-base-patch32 in transformers' form.",
            ) from error
        self._torch = torch
        self._side = int(self._model.config.vision_config.image_size)
        self.name = f"CLIP cosine ({Path(model).name})"

    async def compare(self, first: bytes, second: bytes) -> float:
        return await asyncio.to_thread(self._compare, first, second)

    def _compare(self, first: bytes, second: bytes) -> float:
        torch = self._torch
        pixels = np.stack([self._pixels(first), self._pixels(second)])
        with torch.inference_mode():
            pooled = self._model.vision_model(pixel_values=torch.from_numpy(pixels)).pooler_output
            one, other = torch.nn.functional.normalize(
                self._model.visual_projection(pooled), dim=-1
            )
        return float(one @ other)

    def _pixels(self, picture: bytes) -> np.ndarray[Any, Any]:
        """As OpenAI's CLIP takes a picture: shorter side to the model's, the middle, normalised."""
        with Image.open(io.BytesIO(picture)) as opened:
            image = opened.convert("RGB")
        scale = self._side / min(image.size)
        width, height = (max(self._side, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - self._side) // 2, (height - self._side) // 2
        image = image.crop((left, top, left + self._side, top + self._side))
        values = (np.asarray(image, dtype=np.float32) / 255 - self._MEAN) / self._DEVIATION
        return values.transpose(2, 0, 1).astype(np.float32)


def black_picture() -> bytes:
    """What stands for a page that there isn't, as published: 224 x 224 black pixels."""
    output = io.BytesIO()
    Image.new("RGB", (224, 224)).save(output, "PNG")
    return output.getvalue()
