"""What a program or a page is where two are compared; the two kinds share no process."""

from typing import Literal

Kind = Literal["answer", "reference"]
