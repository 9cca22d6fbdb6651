"""What a program or a page is to the code that compares two; the two kinds share no process."""

from typing import Literal

Kind = Literal["answer", "reference"]
