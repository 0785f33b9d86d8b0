#!/usr/bin/env python3
"""Writes the digits of scikit-learn as IDX files, under the names of the MNIST files.

Usage: make_digits.py [FOLDER]    needs scikit-learn, and no network: it comes with the data

1,797 images of 8 x 8; every sixth is a test image. Pixels of 0..16 become 0..255.
"""

import pathlib
import struct
import sys

from sklearn.datasets import load_digits


def write_idx(path, shape, values):
    header = struct.pack(f">BBBB{len(shape)}I", 0, 0, 0x08, len(shape), *shape)  # 0x08: unsigned bytes
    path.write_bytes(header + bytes(values))


def write_part(folder, part, images, labels):
    pixels = [int(pixel) * 255 // 16 for image in images for pixel in image]
    write_idx(folder / f"{part}-images-idx3-ubyte", (len(images), 8, 8), pixels)
    write_idx(folder / f"{part}-labels-idx1-ubyte", (len(labels),), [int(label) for label in labels])


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    images, labels = load_digits(return_X_y=True)
    test = [i for i in range(len(images)) if i % 6 == 5]
    train = [i for i in range(len(images)) if i % 6 != 5]
    write_part(folder, "train", images[train], labels[train])
    write_part(folder, "t10k", images[test], labels[test])


if __name__ == "__main__":
    main()
