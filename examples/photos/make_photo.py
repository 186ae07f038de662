"""Paint the photo of this example: a harbour at slack water. Nobody's picture but ours.

    .venv/bin/python examples/photos/make_photo.py

writes harbour.jpg, and harbour-again.jpg: the same picture smaller, brighter and saved anew, for the duplicate check.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, HORIZON = 1800, 1200, 700
Colour = tuple[int, int, int]


def blend(first: Colour, second: Colour, part: float) -> Colour:
    """A colour between two: the first at 0, the second at 1."""
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(first, second, strict=True))
    return red, green, blue


def paint() -> Image.Image:
    """The picture."""
    rng = random.Random(1200)
    photo = Image.new("RGB", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(photo)
    for y in range(HORIZON):
        draw.line([(0, y), (WIDTH, y)], fill=blend((38, 62, 104), (250, 190, 130), (y / HORIZON) ** 1.4))
    draw.ellipse([1180, 480, 1340, 640], fill=(255, 236, 190))
    for depth, colour in enumerate([(120, 110, 130), (84, 84, 110), (52, 60, 84)]):
        hills = [(x, HORIZON - ridge(x, depth)) for x in range(0, WIDTH + 1, 6)]
        draw.polygon([(0, HORIZON), *hills, (WIDTH, HORIZON)], fill=colour)
    mirror = photo.crop((0, 0, WIDTH, HORIZON)).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    water = ImageEnhance.Brightness(mirror.resize((WIDTH, HEIGHT - HORIZON))).enhance(0.72)
    photo.paste(water.filter(ImageFilter.GaussianBlur(3)), (0, HORIZON))
    for _ in range(900):
        y = rng.randint(HORIZON + 6, HEIGHT - 4)
        x, length = rng.randint(0, WIDTH), round((y - HORIZON) * rng.uniform(0.05, 0.35))
        shade = blend(photo.getpixel((min(x, WIDTH - 1), y)), (255, 240, 215), rng.uniform(0.05, 0.3))  # type: ignore[arg-type]
        draw.line([(x, y), (x + length, y)], fill=shade, width=2)
    for x, size in ((420, 1.0), (640, 0.7), (1480, 1.25)):
        boat(draw, x, round(HORIZON + 150 * size), size)
    return photo.filter(ImageFilter.GaussianBlur(0.6))


def ridge(x: int, depth: int) -> int:
    """How high the hills stand at ``x``."""
    waves = math.sin(x / (310 - 60 * depth) + depth * 2.1) + 0.5 * math.sin(x / (97 + 20 * depth) + depth)
    return round(150 - 42 * depth + waves * (46 - 8 * depth))


def boat(draw: ImageDraw.ImageDraw, x: int, y: int, size: float) -> None:
    """A boat with its mast and sail."""

    def at(dx: float, dy: float) -> tuple[float, float]:
        return x + dx * size, y + dy * size

    draw.polygon([at(-90, 0), at(100, 0), at(66, 42), at(-66, 42)], fill=(40, 34, 40))
    draw.line([at(0, 0), at(0, -220)], fill=(30, 26, 30), width=max(2, round(5 * size)))
    draw.polygon([at(8, -210), at(8, -24), at(92, -24)], fill=(238, 226, 206))
    draw.polygon([at(-8, -180), at(-8, -24), at(-70, -24)], fill=(206, 88, 70))


def main() -> None:
    """Write both files."""
    photo = paint()
    photo.save(HERE / "harbour.jpg", quality=82, optimize=True)
    again = ImageEnhance.Brightness(photo.resize((1200, 800))).enhance(1.08)
    again.save(HERE / "harbour-again.jpg", quality=60, optimize=True)
    for name in ("harbour.jpg", "harbour-again.jpg"):
        print(f"{name}: {(HERE / name).stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
