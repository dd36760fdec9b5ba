"""A Typer program with two commands that do nothing: the least that `--help` can cost."""

import typer

app = typer.Typer()


@app.command()
def one(name: str) -> None:
    """Do one thing."""


@app.command()
def two(name: str, loud: bool = False) -> None:
    """Do another."""


if __name__ == "__main__":
    app()
