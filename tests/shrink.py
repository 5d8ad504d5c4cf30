"""Writes the zip of a function as small as DEFLATE allows. libdeflate finds 3 % that zlib does not, and the same binary gives the
same bytes.

    python tests/shrink.py BINARY ARCHIVE

`make package` runs it with the interpreter that has libdeflate. PKWARE's APPNOTE 6.3.10 has the layout, in 4.3 and 4.4.
"""

import struct
import sys
import zlib
from pathlib import Path

import deflate

NAME = b"bootstrap"
#: The version of the format that DEFLATE needs, no flags, DEFLATE, and midnight of 1980-01-01, the first date that there is.
DEFLATED = struct.pack("<HHHHH", 20, 0, 8, 0, 1 << 5 | 1)
#: Written on Unix, version 2.0 of the format.
MADE_BY = struct.pack("<H", 3 << 8 | 20)
#: A regular file with the rights 755.
MODE = 0o100755 << 16
#: The best that libdeflate can do.
LEVEL = 12


def shrink(content: bytes) -> bytes:
    """The whole archive."""
    packed = deflate.deflate_compress(content, LEVEL)
    described = DEFLATED + struct.pack("<IIIHH", zlib.crc32(content), len(packed), len(content), len(NAME), 0)
    local = b"PK\x03\x04" + described + NAME + packed
    central = b"PK\x01\x02" + MADE_BY + described + struct.pack("<HHHII", 0, 0, 0, MODE, 0) + NAME
    return local + central + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


if __name__ == "__main__":
    binary, archive = map(Path, sys.argv[1:])
    archive.write_bytes(shrink(binary.read_bytes()))
