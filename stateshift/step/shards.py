"""TransformShard: feed files through a pure transform, which goes by its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stateshift.plain import JsonObject
from stateshift.step.contents import (
    NewFile,
    each,
    files_hold,
    may_hold,
    paths_in_words,
    reading,
    remove_ours,
    settle,
)
from stateshift.step.evidence import FilesWritten, OperatorFold, of_kind, written_files
from stateshift.step.images import as_evidence, reading_of
from stateshift.step.protocol import Discrepancy, Evidence, FileEvidence
from stateshift.storage.protocol import Content, Input
from stateshift.survey import FileInfo
from stateshift.world import Contents, ShardRead, World

# The outputs of so little are held until all of them are written at once, if each is waited for.
TOGETHER_BYTES_MAX = 1024 * 1024


# The option by which a transform checks the rows of its inputs.
ROWS_CHECKED = "rows"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Files at another location than a step's own."""

    location: str
    files: tuple[FileInfo, ...]


@dataclass(frozen=True, slots=True)
class TransformShard:
    """Feed files through a named pure transform. `whole` as in CopyFiles; `beside`: more inputs."""

    kind: ClassVar[str] = "TransformShard"
    decodes: ClassVar[bool] = True
    name: str
    transform: str
    options: JsonObject
    source: str
    inputs: tuple[FileInfo, ...]
    target: str
    outputs: tuple[str, ...]
    whole: bool = False
    beside: tuple[Elsewhere, ...] = ()

    @property
    def fills(self) -> str | None:
        return self.target

    @property
    def files(self) -> int:
        return len(self.outputs)

    @property
    def bytes(self) -> int:
        return sum(sum(item.size for item in place.files) for place in self._places)

    @property
    def checked(self) -> tuple[str, ...]:
        """The paths of the inputs that are checked while they are read, as a look at them would."""
        is_checked = ROWS_CHECKED in self.options
        return tuple(item.path for item in self.inputs) if is_checked else ()

    @property
    def _places(self) -> tuple[Elsewhere, ...]:
        return (Elsewhere(self.source, self.inputs), *self.beside)

    def describe(self) -> str:
        inputs = paths_in_words(tuple(item.path for item in self.inputs))
        return f"{self.transform}: {inputs} to {self.target}"

    def run(self, world: World) -> Evidence:
        contents = world.transforms[self.transform](self.options, self.opened(world))
        assert len(contents) == len(self.outputs), f"{self.transform} made {len(contents)} outputs"
        made: list[tuple[str, Content]] = []
        for path, content in zip(self.outputs, contents, strict=True):
            if content is not None:
                made.append((path, content))
        target = world.storage(self.target)
        if target.traits.at_once > 1 and self.bytes <= TOGETHER_BYTES_MAX:
            made = [(path, _hold(content)) for path, content in made]
            written = tuple(each(world, made, lambda output: self._put(world, *output), target))
            target.sync()
        else:
            written = self.written(world, made)
        world.meter.done(self.files, self.bytes)
        shards_read = contents.shards_read() if isinstance(contents, Contents) else ()
        return FilesWritten(written, self.sums_of(shards_read))

    def opened(self, world: World) -> list[Input]:
        """Return a reader of each of the inputs."""
        inputs: list[Input] = []
        for place in self._places:
            storage = world.storage(place.location)
            inputs += [reading(storage, item) for item in place.files]
        return inputs

    def written(
        self, world: World, made: Sequence[tuple[str, Content]]
    ) -> tuple[FileEvidence, ...]:
        """Write outputs one after the other: each holds a piece of the state."""
        files = tuple(self._put(world, path, content) for path, content in made)
        world.storage(self.target).sync()
        return files

    def sums_of(self, shards_read: Iterable[ShardRead]) -> dict[str, OperatorFold]:
        """Return the folds of shards that were read, by the names that a comparison asks for."""
        read = {}
        for shard_read in shards_read:
            name = reading_of(self.source, shard_read.shard, shard_read.settings)
            read[name] = as_evidence(shard_read.sums)
        return read

    def _put(self, world: World, path: str, content: Content) -> FileEvidence:
        world.check_interrupted()
        target = world.storage(self.target)
        new = not may_hold(world, target, path, 0)
        return settle(target, NewFile(path, content, whole=self.whole), new)

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        return files_hold(world, self.target, of_kind(evidence, FilesWritten).files)

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        return remove_ours(world, self.target, self.outputs, written_files(evidence))


def _hold(content: Content) -> Content:
    made = b"".join(content())
    return lambda: iter((made,))
