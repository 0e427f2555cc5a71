from pathlib import Path

from click.testing import CliRunner

from tensorc_dsl.cli.main import main

Path("notes.jsonl").write_text("hello\n")
said = CliRunner().invoke(main, ["db", "import", "notes.jsonl", "--records", "records.sqlite"]).stderr
print(said.removeprefix("error[").replace("]", ""))
