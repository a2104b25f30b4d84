"""`python -m benchmarks [question ...]`: answers the questions asked for, or all of them."""

import sys

from rich.console import Console

from benchmarks import p1
from benchmarks.race import WrongContender
from benchmarks.report import Answer, show, write
from shopmicro.embedded.errors import EmbeddedError
from shopmicro.embedded.processes import temporary_directory

QUESTIONS = {"p1": p1.answer}


def main(asked: list[str]) -> int:
    """Answer the questions, print the ratios, write the results; 1 if one could not be answered."""
    console = Console()
    if unknown := [name for name in asked if name not in QUESTIONS]:
        console.print(f"no question {', '.join(unknown)}; there are: {', '.join(QUESTIONS)}", style="red")
        return 2
    try:
        answers = [answered(name, console) for name in asked or QUESTIONS]
    except (EmbeddedError, WrongContender) as error:
        console.print(str(error), style="red", markup=False)
        return 1
    show(console, answers)
    for answer in answers:
        console.print(f"written: benchmarks/results/{write(answer).name}", style="dim")
    return 0


def answered(name: str, console: Console) -> Answer:
    """Answer one question, on servers of its own."""
    with temporary_directory("shopmicro-bench-") as directory:
        return QUESTIONS[name](directory, lambda line: console.print(f"{name}: {line}", style="dim"))


if __name__ == "__main__":
    sys.exit(main([name.lower() for name in sys.argv[1:]]))
