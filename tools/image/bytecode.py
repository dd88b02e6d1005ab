"""Run by the Python of the image: modules come in by their paths, their bytecode goes out, both marshalled.

It is a program of its own, because the output of `marshal` also depends on other objects in memory. A process that does
nothing else gives the same bytes every time. It runs in the image's own Python, so the Python that builds the image
does not matter.
"""

import importlib.util
import marshal
import sys


def bytecode(path: str, source: bytes) -> bytes:
    """A .pyc that is never checked against its source (the files cannot change); empty if it is no module."""
    try:
        code = compile(source, f"/{path}", "exec", dont_inherit=True, optimize=0)
    except SyntaxError:
        return b""  # templates for other Pythons that some packages carry
    by_hash_unchecked = (0b01).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + by_hash_unchecked + importlib.util.source_hash(source) + marshal.dumps(code)


if __name__ == "__main__":
    modules = marshal.loads(sys.stdin.buffer.read())  # noqa: S302
    sys.stdout.buffer.write(marshal.dumps([(path, bytecode(path, source)) for path, source in modules]))
