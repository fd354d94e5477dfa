"""An inbox outside the home, where other systems put exports: a folder, or a prefix of a bucket."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.exports import PAYMENTS
from tests.support.fake_s3 import FakeBucket


class Beyond:
    """An inbox outside the home."""

    def __init__(self, place: str, bucket: FakeBucket) -> None:
        self.place, self.bucket = place, bucket
        self.puts, self.ago = 0, timedelta(hours=1)

    def put(self, name: str, *rows: str, text: str | None = None) -> None:
        body = (text or PAYMENTS + "".join(f"{row}\n" for row in rows)).encode()
        if "://" in self.place:
            self.puts += 1  # one second apart: no two files get the same time
            at = datetime.now(UTC) - self.ago + timedelta(seconds=self.puts)
            self.bucket.objects[f"in/box/{name}"] = (body, at)
            return
        path = Path(self.place) / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.with_name("new").write_bytes(body)
        path.with_name("new").replace(path)

    def names(self) -> list[str]:
        if "://" in self.place:
            return sorted(name.removeprefix("in/box/") for name in self.bucket.objects if name.startswith("in/box/"))
        return sorted(str(path.relative_to(self.place)) for path in Path(self.place).rglob("*") if path.is_file())
