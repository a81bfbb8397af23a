"""One image, whatever its file holds, as 8 bits a channel in colour; or one line that names the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from nas_lightning.data.formats.listing import ImageFile
from nas_lightning.errors import InputError

MOST_PIXELS = 89_478_485
"""Of an image that nobody asked for: what a quarter of a gigabyte holds."""
_ORIENTATION = 0x0112
_SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")
_SIXTEEN_BIT_FILES = ("PNG", "PPM", "JPEG2000")  # whose grey of more than 8 bits comes as mode I


def decode(file: ImageFile, most_pixels: int = MOST_PIXELS) -> Image.Image:
    """The image in colour, or an `InputError` that names its file.

    Grey of 16 bits and floats from 0 to 1 are scaled to 8 bits, not cut off; transparency is left out; what a
    camera says of its own rotation (EXIF) is followed, as viewers do. Images of more than `most_pixels` are
    refused by their header, before they are decoded.
    """
    try:
        with open(file.path, "rb") as stream:
            stream.seek(file.offset)
            content = stream.read(file.size)
        with _without_limit(), Image.open(io.BytesIO(content)) as image:
            _check_size(image, most_pixels)
            return _upright(_to_colour(image), image)
    except InputError as error:
        raise InputError(str(error), where=file.label) from None
    except UnidentifiedImageError:
        raise InputError(
            "expected an image", got="a damaged file or another kind", where=file.label
        ) from None
    except Exception as error:  # decoders raise whatever the broken bytes lead them to
        raise InputError(f"expected an image that can be read: {error}", where=file.label) from None


@contextmanager
def _without_limit() -> Iterator[None]:
    """Pillow's own limit aside, which nobody can ask more than twice of."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _check_size(image: Image.Image, most_pixels: int) -> None:
    width, height = image.size
    if width * height > most_pixels:
        raise InputError(f"expected an image of at most {most_pixels:,} pixels", got=f"{width} × {height}")


def _upright(colour: Image.Image, original: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says; as it is where that cannot be read."""
    try:
        orientation = original.getexif().get(_ORIENTATION, 1)
        if orientation == 1:
            return colour
        colour.getexif()[_ORIENTATION] = orientation
        return ImageOps.exif_transpose(colour)
    except Exception:  # broken tags say nothing of the pixels
        return colour


def _to_colour(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BITS or (image.mode == "I" and image.format in _SIXTEEN_BIT_FILES):
        grey = np.asarray(image).astype(np.float64) / 65_535
    elif image.mode == "F":
        grey = np.asarray(image).astype(np.float64)
    elif image.mode == "I":
        raise InputError("expected an image of 8 or 16 bits or of floats from 0 to 1", got="32-bit integers")
    else:
        return image.convert("RGB")
    if not (np.isfinite(grey).all() and grey.min() >= 0 and grey.max() <= 1):
        raise InputError("expected floats from 0 to 1", got=f"{grey.min():.4g} to {grey.max():.4g}")
    return Image.fromarray(np.rint(255 * grey).astype(np.uint8)).convert("RGB")
